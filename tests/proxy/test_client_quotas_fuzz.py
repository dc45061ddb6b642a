"""Whatever is asked about client quotas is answered or refused; what is accepted, the quota file can say."""

from __future__ import annotations

from typing import Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.proxy.client_quotas import Managed, altered, connection_of, entry
from tests.proxy.client_quotas import alter as alter_request
from tests.proxy.client_quotas import describe as describe_request
from weir.protocol.messages import AlterClientQuotasRequest
from weir.protocol.pieces import at_once
from weir.proxy.handlers.quota_api.alterations import read_alterations
from weir.proxy.handlers.quota_api.filters import described, read_filter
from weir.quotas import QuotaKey, QuotaTable, parse
from weir.quotas.table.group_entry import FLOOR_KEYS
from weir.quotas.table.quota_edit import edited

PROPERTY: Final = settings(max_examples=75)
KINDS: Final = st.sampled_from(["user", "client-id", "ip", "", "group"])
NAMES: Final = st.one_of(
    st.none(),
    st.sampled_from(["", "alice", "<default>", "10.0.0.1", "0::1", "::ffff:10.0.0.1", '"""', "a\nb", "\x00"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
)
KEYS: Final = st.sampled_from([*(key.value for key in QuotaKey), "bogus", ""])
VALUES: Final = (
    st.none()
    | st.floats()
    | st.sampled_from([5e-324, 1e-6, 12.5, 2.0**63])
    | st.integers(1, 2**40).map(float)
)
ENTRIES: Final = st.builds(
    entry, st.lists(st.tuples(KINDS, NAMES), max_size=3), st.lists(st.tuples(KEYS, VALUES), max_size=4)
)


@PROPERTY
@given(st.lists(ENTRIES, max_size=4))
@example([entry({"ip": "fe80::1%eth0"}, {"connection_creation_rate": 1.0})])
def test_accepted_quota_alterations_can_be_written_to_the_quota_file(
    entries: list[AlterClientQuotasRequest.EntryData],
) -> None:
    accepted = at_once(read_alterations(alter_request(*entries))).changes
    changes = {
        quota: value for quota, value in accepted.items() if quota[1] not in FLOOR_KEYS
    }  # stores check floors
    table = QuotaTable().altered(changes)
    assert parse(edited("# ours\n", changes)) == table
    everything = described(table, read_filter(describe_request())).entries
    assert len(everything or []) == len(list(table.entities()))


@PROPERTY
@given(st.lists(ENTRIES, max_size=4), st.sampled_from([0, 1]))
def test_alterclientquotas_answers_every_entity_once(
    entries: list[AlterClientQuotasRequest.EntryData], version: int
) -> None:
    answer = altered(connection_of(Managed()), alter_request(*entries), version)
    asked = {
        frozenset({part.entity_type: part.entity_name for part in each.entity}.items()) for each in entries
    }
    told = [
        frozenset((part.entity_type, part.entity_name) for part in each.entity) for each in answer.entries
    ]
    assert len(told) == len(set(told))
    assert set(told) == asked
