"""Rates of old reads: who waits for bytes of old batches, and who does not."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conformance.batches import TIME_MS, batch
from tests.proxy.usage_totals import Taken, recorded
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import body_of, response, split
from tests.wire.messages import fetch, identity, least
from weir.protocol.messages import FetchResponse
from weir.proxy.connection.usage_registries import UsageRegistries
from weir.proxy.counters import Counters
from weir.proxy.handlers.mutations.cluster_state import ClusterState
from weir.proxy.handlers.old_reads.old_reads import OldReadAge
from weir.proxy.handlers.plans import Plans
from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable
from weir.quotas.table.groups import ALL
from weir.usage.records import ByQuota

RATE: Final = 100.0
OLD: Final = batch(30)
ALL_CLIENTS: Final = Entity(group=ALL)
AGE_MS: Final = 900_000


def fetched(version: int = 11, number: int = 1, records: bytes = OLD, throttle_ms: int = 0) -> bytes:
    partition = FetchResponse.PartitionData(records=records)
    topic = FetchResponse.FetchableTopicResponse(**identity("a", version), partitions=[partition])
    return response(FetchResponse(responses=[topic], throttle_time_ms=throttle_ms), version, number)


class Readers:
    """Connections at one broker; all that they are answered is as old as `age_ms`."""

    def __init__(self, table: QuotaTable, buffer_bytes: int = 65536) -> None:
        self.quotas = BrokerQuotas.create(table)
        self.age_ms = 2 * AGE_MS
        age = OldReadAge(AGE_MS, lambda: TIME_MS + 4 + self.age_ms)
        self._plans = Plans(Counters(), cluster=ClusterState(old_read_age=age))
        self._buffer_bytes = buffer_bytes

    def connect(self) -> Wire:
        quotas, plans = self.quotas, self._plans
        return Wire(new_connection(quotas=quotas, plans=plans, buffer_bytes=self._buffer_bytes))

    def read(self, wire: Wire, now_ms: int = 0) -> int:
        """Fetch once; return the throttle time that the answer tells."""
        wire.exchange(now_ms, fetch(), fetched())
        (frame,) = split(bytes(wire.to_client))
        wire.to_client.clear()
        wire.to_broker.clear()
        answer = body_of(frame, FetchResponse, 11)
        assert answer.responses[0].partitions[0].records == OLD
        return answer.throttle_time_ms


def limited(mode_shadow: bool = False) -> QuotaTable:
    values = {(ALL_CLIENTS, QuotaKey.OLD_READ_BYTE_RATE): RATE}
    return QuotaTable(None, values) if mode_shadow else QuotaTable(values)


WAIT_MS: Final = round((len(OLD) / RATE - 10) * 1000)
"""The throttle time after one answer: Kafka's window of ten seconds."""


def test_a_connection_that_read_old_batches_waits_and_one_at_the_tail_does_not() -> None:
    readers = Readers(limited())
    replaying, tailing = readers.connect(), readers.connect()
    assert readers.read(replaying) == WAIT_MS > 0
    assert replaying.connection.throttled_until_ms == WAIT_MS
    readers.age_ms = AGE_MS
    assert readers.read(tailing) == 0
    assert tailing.connection.throttled_until_ms == 0


def test_a_connection_whose_latest_answer_was_new_waits_no_more() -> None:
    readers = Readers(limited())
    wire = readers.connect()
    readers.read(wire)
    readers.age_ms = AGE_MS
    assert [readers.read(wire, WAIT_MS + number) for number in range(3)] == [0, 0, 0]


def test_an_answer_whose_head_has_passed_makes_the_next_fetch_wait_without_records() -> None:
    readers = Readers(limited(), buffer_bytes=300)
    wire, other = readers.connect(), readers.connect()
    assert readers.read(wire) == 0
    assert wire.connection.throttled_until_ms == 0
    wire.feed(1000, client=fetch(2))
    assert bytes(wire.to_broker) == least(2)
    wire.feed(1000, broker=fetched(number=2))
    (frame,) = split(bytes(wire.to_client))
    answer = body_of(frame, FetchResponse, 11)
    assert (answer.throttle_time_ms, answer.responses[0].partitions[0].records) == (WAIT_MS - 1000, b"")
    assert wire.connection.throttled_until_ms == WAIT_MS
    readers.age_ms = AGE_MS
    assert readers.read(other, 1000) == 0


def test_old_bytes_are_charged_and_nothing_is_scanned_without_a_rate() -> None:
    readers = Readers(limited())
    readers.read(readers.connect())
    (budget,) = list(readers.quotas.old_reads)
    assert (budget.charged, budget.throttled) == (len(OLD), 1)
    free = Readers(QuotaTable())
    assert free.read(free.connect()) == 0
    assert not free.quotas.ledger("u", "app", 0).counts_records


def test_usage_and_traces_tell_the_throttle_times_of_old_reads_apart() -> None:
    """The first fetch is told to wait; the second one, of a response larger than the buffer, at the third."""
    taken = Taken(UsageRegistries(trace_share=1.0))
    whole, parts = Readers(limited()), Readers(limited(), buffer_bytes=300)
    for readers in (whole, parts):
        wire = readers.connect()
        recorded(wire.connection, taken.registries)
        readers.read(wire)
        if readers is parts:
            wire.exchange(1000, fetch(2), fetched(number=2))
        wire.connection.end(1000)
    taken.drain()
    told = [ByQuota(old_read_byte_rate=wait_ms) for wait_ms in (WAIT_MS, 0, WAIT_MS - 1000)]
    assert [trace.throttle_ms for trace in taken.traces] == told
    assert [trace.old_bytes for trace in taken.traces] == [len(OLD), len(OLD), 0]
    assert sum(record.throttle_ms.old_read_byte_rate for record in taken.records) == 2 * WAIT_MS - 1000


def test_a_rate_in_shadow_counts_and_makes_nobody_wait() -> None:
    readers = Readers(limited(mode_shadow=True))
    taken, wire = Taken(UsageRegistries(trace_share=1.0)), readers.connect()
    recorded(wire.connection, taken.registries)
    assert [readers.read(wire) for _answer in range(3)] == [0, 0, 0]
    assert [record.old_bytes for record in taken.drain()] == [3 * len(OLD)]
    shadow = readers.quotas.old_reads.shadow
    assert shadow is not None
    assert [budget.charged for budget in shadow] == [3 * len(OLD)]


@pytest.mark.parametrize("buffer_bytes", [300, 65536])
def test_rates_of_topics_and_of_old_reads_both_charge_an_answer(buffer_bytes: int) -> None:
    topic = (Entity(topic="a"), QuotaKey.CONSUMER_BYTE_RATE)
    readers = Readers(QuotaTable({**limited().values, topic: 10**6}), buffer_bytes)
    readers.read(readers.connect())
    assert readers.quotas.topics is not None
    charged = [
        budget.charged for budget in (*readers.quotas.topics.fetch.budgets(), *readers.quotas.old_reads)
    ]
    assert charged == [len(OLD), len(OLD)]
