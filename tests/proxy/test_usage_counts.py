"""Whatever clients do, however their bytes are cut, and whenever counts are taken: records add up to what
went over the wire, to what quotas are charged with, and to what they answered; and nobody else notices.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proxy.conversations import SMALL_BYTES, TABLE, Conversation, Exchange, cut, exchanges
from tests.proxy.request_costs import VARIOUS, timed
from tests.proxy.usage_totals import Taken, recorded, total, total_traced
from tests.proxy.wire import BUFFER_BYTES
from weir.proxy.connection.connection import Connection
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.quotas import Entity, QuotaKey, QuotaTable

PROPERTY: Final = settings(max_examples=25)
CUTS: Final = st.lists(st.integers(1, 700), min_size=1)
DRAINS: Final = st.lists(st.sampled_from(["", "", "", "step", "step", "drain"]), min_size=1)
EVERYBODY: Final = Entity(user="ANONYMOUS")
HUGE: Final = QuotaTable(
    {
        (EVERYBODY, QuotaKey.PRODUCER_BYTE_RATE): 1e15,
        (EVERYBODY, QuotaKey.CONSUMER_BYTE_RATE): 1e15,
        (EVERYBODY, QuotaKey.REQUEST_PERCENTAGE): 1e9,
    }
)
TIGHT: Final = QuotaTable(
    {
        **TABLE.values,
        (Entity(client_id="slow"), QuotaKey.REQUEST_PERCENTAGE): 0.001,
        (Entity(client_id="app"), QuotaKey.REQUEST_PERCENTAGE): 0.004,
    }
)
TABLES: Final = {"none": QuotaTable(), "bytes": TABLE, "huge": HUGE, "tight": TIGHT}


def draining(cuts: list[int], drains: list[str], taken: Taken) -> Iterator[int]:
    """Cuts, between which the registries are drained, or in part."""
    for number, size in enumerate(cut(cuts)):
        what = drains[number % len(drains)]
        if what:
            getattr(taken, what)()
        yield size


def talk(
    script: list[Exchange], cuts: Any, table: QuotaTable, taken: Taken | None = None, **kwargs: Any
) -> tuple[dict[str, Any], Connection]:
    """Have a conversation, whose usage is counted if it is to be taken."""
    connection = timed(table, VARIOUS, **kwargs)
    if taken is not None:
        recorded(connection, taken.registries)
    outcome = Conversation(script, cuts, connection).run()
    connection.end(connection.now_ms)
    if taken is not None:
        taken.drain()
    return outcome, connection


def asked_bytes(script: list[Exchange]) -> int:
    return sum(len(one.asked) for one in script)


@PROPERTY
@given(
    script=exchanges(),
    cuts=CUTS,
    drains=DRAINS,
    name=st.sampled_from(list(TABLES)),
    small=st.booleans(),
)
def test_usage_records_add_up_to_the_bytes_on_the_wire(
    script: list[Exchange], cuts: list[int], drains: list[str], name: str, small: bool
) -> None:
    taken = Taken(UsageRegistries(trace_share=1.0))
    size = SMALL_BYTES if small else BUFFER_BYTES
    outcome, _connection = talk(script, draining(cuts, drains, taken), TABLES[name], taken, buffer_bytes=size)
    sums = total(taken.records)
    assert outcome["violation"] is None
    assert sums["requests"] == len(script)
    assert sums["bytes_in"] == asked_bytes(script)
    assert sums.get("bytes_out", 0) == len(outcome["to_client"])
    assert "errors" not in sums


@PROPERTY
@given(script=exchanges(), cuts=CUTS, drains=DRAINS, name=st.sampled_from(list(TABLES)))
def test_counting_usage_changes_no_bytes_charges_or_mutes(
    script: list[Exchange], cuts: list[int], drains: list[str], name: str
) -> None:
    """The same bytes to both sides, the same charges, the same mutes."""
    for size in (BUFFER_BYTES, SMALL_BYTES):
        kwargs: dict[str, Any] = {"buffer_bytes": size}
        taken = Taken(UsageRegistries())
        counted, one = talk(script, draining(cuts, drains, taken), TABLES[name], taken, **kwargs)
        plain, other = talk(script, cut(cuts), TABLES[name], **kwargs)
        assert counted == plain
        assert one.throttled_until_ms == other.throttled_until_ms
        assert one.now_ms == other.now_ms


@PROPERTY
@given(script=exchanges(), cuts=CUTS, drains=DRAINS)
def test_usage_records_count_charges_with_and_without_a_quota(
    script: list[Exchange], cuts: list[int], drains: list[str]
) -> None:
    with_quota, without = Taken(UsageRegistries()), Taken(UsageRegistries())
    _outcome, connection = talk(script, draining(cuts, drains, with_quota), HUGE, with_quota)
    talk(script, draining(cuts, drains, without), QuotaTable(), without)
    quotas = connection.quotas
    charged = {
        "charged_bytes": sum(budget.charged for kind in (quotas.produce, quotas.fetch) for budget in kind),
        "request_time_us": round(10_000 * sum(budget.charged for budget in quotas.request), 2),
    }
    for taken in (with_quota, without):
        sums = total(taken.records)
        for name, value in charged.items():
            assert abs(sums.get(name, 0) - value) <= 0.001 * len(taken.records) + 0.01, name


@PROPERTY
@given(script=exchanges(), cuts=CUTS, drains=DRAINS)
def test_usage_records_count_the_throttle_times_of_charges(
    script: list[Exchange], cuts: list[int], drains: list[str]
) -> None:
    taken = Taken(UsageRegistries(trace_share=1.0))
    _outcome, connection = talk(script, draining(cuts, drains, taken), TIGHT, taken)
    quotas, sums = connection.quotas, total(taken.records)
    traced = total_traced(taken.traces)
    for name, kind in (
        ("producer_byte_rate", quotas.produce),
        ("consumer_byte_rate", quotas.fetch),
        ("request_percentage", quotas.request),
    ):
        waits_ms = sum(budget.throttle_ms_total for budget in kind)
        assert sums.get(f"{name} ms", 0) == traced.get(f"{name} ms", 0) == waits_ms
        assert sums.get(f"{name} violations", 0) == sum(budget.throttled for budget in kind)


@PROPERTY
@given(script=exchanges(), cuts=CUTS, drains=DRAINS, name=st.sampled_from(list(TABLES)))
def test_request_traces_add_up_to_the_usage_records(
    script: list[Exchange], cuts: list[int], drains: list[str], name: str
) -> None:
    taken = Taken(UsageRegistries(trace_share=1.0))
    talk(script, draining(cuts, drains, taken), TABLES[name], taken)
    traced, sums = total_traced(taken.traces), total(taken.records)
    time_us = traced.pop("request_time_us", 0), sums.pop("request_time_us", 0)
    assert abs(time_us[0] - time_us[1]) <= 0.001 * (len(taken.records) + len(taken.traces)) + 0.01
    assert traced == {name: value for name, value in sums.items() if not name.endswith("violations")}
    assert not taken.registries.traces_dropped
    keys = [(each.connection, each.correlation_id, each.time_ms, each.api_key) for each in taken.traces]
    assert len(set(keys)) == len(keys)


@PROPERTY
@given(script=exchanges(), cuts=CUTS, stop=st.integers(0, 40), drains=DRAINS)
def test_usage_is_counted_if_a_connection_ends_anywhere(
    script: list[Exchange], cuts: list[int], stop: int, drains: list[str]
) -> None:
    """What was counted is what has gone by, or begun to; every request has its trace, and nothing is kept."""
    taken = Taken(UsageRegistries(trace_share=1.0))

    def some() -> Iterator[int]:
        for number, size in enumerate(draining(cuts, drains, taken)):
            if number == 2 * stop:
                connection.drain()  # no more is taken from the client
            yield size if number < 2 * stop else 1 << 30

    connection = recorded(timed(TIGHT, VARIOUS), taken.registries)
    outcome: dict[str, Any] = Conversation(script, some(), connection).run()
    connection.end(connection.now_ms)
    taken.drain()
    taken.drain()
    sums = total(taken.records)
    assert len(taken.traces) == sums.get("requests", 0)
    assert sums.get("bytes_out", 0) == len(outcome["to_client"])
    assert sums.get("bytes_in", 0) <= asked_bytes(script)
    assert total_traced(taken.traces).get("bytes_in", 0) == sums.get("bytes_in", 0)
