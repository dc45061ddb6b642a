"""Whatever is asked about client quotas is answered or refused; what is accepted, the quota file can say."""

from __future__ import annotations

from typing import Final

from hypothesis import example, given
from hypothesis import strategies as st

from tests.properties import examples
from tests.protocol.generate import messages
from tests.proxy.client_quotas import TABLE, Managed, altered, connection_of, entry, vouch
from tests.proxy.client_quotas import alter as alter_request
from tests.proxy.client_quotas import describe as describe_request
from tests.proxy.fuzzed_requests import damaged
from tests.proxy.wire import Wire
from tests.wire.frames import body_of, request, split
from weir.protocol.codec import response_type
from weir.protocol.messages import AlterClientQuotasRequest, DescribeClientQuotasRequest, Message
from weir.protocol.pieces import at_once
from weir.proxy.handlers.quota_api.alterations import read_alterations
from weir.proxy.handlers.quota_api.filters import described, read_filter
from weir.quotas import QuotaKey, QuotaTable, parse
from weir.quotas.table.quota_edit import edited

PROPERTY: Final = examples(300)
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
    changes = at_once(read_alterations(alter_request(*entries))).changes
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


@st.composite
def asked(draw: st.DrawFn) -> tuple[Message, int]:
    kind = draw(st.sampled_from([AlterClientQuotasRequest, DescribeClientQuotasRequest]))
    version = draw(st.sampled_from([0, 1]))
    return draw(messages(kind, version)), version


@PROPERTY
@given(asked(), st.data())
def test_any_client_quota_request_ends_in_one_response_or_a_violation(
    question: tuple[Message, int], data: st.DataObject
) -> None:
    message, version = question
    frame = damaged(data, request(message, version, 7))
    connection = connection_of(Managed(TABLE))
    wire = Wire(connection)
    wire.feed(0, client=frame)
    if wire.to_broker and frame == request(message, version, 7):
        vouch(wire, 7)
        (answer,) = split(bytes(wire.to_client))
        body_of(
            answer, response_type(48 if isinstance(message, DescribeClientQuotasRequest) else 49), version
        )
    assert connection.violation is not None or wire.to_client or wire.to_broker or wire.waiting_bytes
