"""Share fetches (KIP-932) acquire records for their client: a client over its quota must acquire none, or the
broker would deliver them again once its lock on them times out.
"""

from __future__ import annotations

import heapq
from typing import Final

import pytest

from tests.matrix import first_core
from tests.proxy.playbook import Playbook
from tests.proxy.throttled import RATE, fetch_budget, throttled_quotas
from tests.proxy.wire import Wire, new_connection, quota_table
from tests.wire.frames import body_of, request, request_body_of, response
from tests.wire.messages import length_of
from weir.protocol.messages import ShareFetchRequest, ShareFetchResponse
from weir.quotas import BrokerQuotas, QuotaKey

TOLD_MS: Final = 5000
"""Longest throttle that a share fetch is told: acknowledgements wait for it, and locks last 15 s or more."""
LATER_MS: Final = 12_000
"""When bytes that were charged at 0 count no more; a throttle that they have caused may last for longer."""
ROUND_TRIP_MS: Final = 5


def asked(number: int, version: int = 2, *, records: int = 500, size: int = 50 << 20) -> bytes:
    batch = ShareFetchRequest.AcknowledgementBatch(first_offset=0, last_offset=9, acknowledge_types=[1])
    partition = ShareFetchRequest.FetchPartition(acknowledgement_batches=[batch])
    topic = ShareFetchRequest.FetchTopic(partitions=[partition])
    message = ShareFetchRequest(
        max_wait_ms=500, max_bytes=size, max_records=records if version else 0, topics=[topic]
    )
    return request(message, version, number)


def answered(number: int, version: int = 2, *, size: int = 0, told_ms: int = 0) -> bytes:
    records = ShareFetchResponse.PartitionData(records=bytes(size))
    topic = ShareFetchResponse.ShareFetchableTopicResponse(partitions=[records])
    return response(ShareFetchResponse(throttle_time_ms=told_ms, responses=[topic]), version, number)


@pytest.mark.parametrize("version", [1, 2])
def test_a_share_fetch_over_the_quota_acknowledges_and_acquires_nothing(version: int) -> None:
    """It goes on at once, since acknowledgements and the share session do; brokers acquire nothing for 0
    records (SharePartition.acquire). Its response is not charged, so that waiting clients wait no longer.
    """
    quotas = throttled_quotas(fetch_s=60)
    with Playbook(connection=new_connection(quotas=quotas)) as play:
        for now_ms in (LATER_MS, LATER_MS + TOLD_MS):
            play.at(now_ms).client(asked(1, version))
            play.to_broker(asked(1, version, records=0))
            play.muted_until(now_ms + TOLD_MS)
            play.broker(answered(1, version))
            play.to_client(answered(1, version, told_ms=TOLD_MS))
        assert fetch_budget(quotas).charged == 70_000


@pytest.mark.parametrize("version", [0, 2])
def test_acquired_records_are_delivered_over_the_quota(version: int) -> None:
    """Version 0 cannot ask for no records. The other one was forwarded before its client was over."""
    quotas = throttled_quotas(fetch_s=0)
    answer = answered(1, version, size=700)
    with Playbook(connection=new_connection(quotas=quotas)) as play:
        if version:
            play.forwards(asked(1, version, size=900))
        assert fetch_budget(quotas).charge(70_000, 0) == 60_000
        if not version:
            play.forwards(asked(1, version, size=900))
        play.returns(answer, told=answered(1, version, size=700, told_ms=TOLD_MS))
        play.muted_until(TOLD_MS)
        assert play.connection.throttled_by is QuotaKey.CONSUMER_BYTE_RATE
        assert fetch_budget(quotas).charged == 70_000 + length_of(answer) - 1


def test_parallel_share_fetches_ask_for_one_window_and_then_ever_less() -> None:
    """Each asks for half of what the one before asks for: all of them for less than two windows."""
    quotas = BrokerQuotas.create(quota_table(fetch=RATE))
    plays = [Playbook(connection=new_connection(quotas=quotas)) for _ in range(3)]
    window = 10 * RATE
    for play, size in zip(plays, (window, window // 2, window // 4), strict=True):
        play.client(asked(1))
        play.to_broker(asked(1, size=size))
    plays[0].returns(answered(1))
    plays[1].connection.end(0)
    plays[0].at(1000).client(asked(2))  # by then the limit has paid for the response
    plays[0].to_broker(asked(2, size=window // 2))


class Consumer:
    """One of a client's share consumers: it polls without a pause, and obeys."""

    def __init__(self, quotas: BrokerQuotas) -> None:
        self.wire = Wire(new_connection(quotas=quotas))
        self.asked = bytearray()

    def poll(self, now_ms: int) -> int:
        """Ask, if not asked yet; return the most bytes that the broker may deliver, -1 if it must wait."""
        self.asked = self.asked or bytearray(asked(1, size=2**31 - 1))
        self.wire.feed(now_ms, client=bytes(self.asked))
        sent = request_body_of(bytes(self.wire.to_broker), ShareFetchRequest, 2)
        self.wire.to_broker.clear()
        return sent.max_bytes if sent.max_records else 0

    def receive(self, now_ms: int, size: int) -> int:
        """Return how long the broker's response tells to wait."""
        self.asked.clear()
        self.wire.feed(now_ms, broker=answered(1, size=size))
        told = body_of(bytes(self.wire.to_client), ShareFetchResponse, 2).throttle_time_ms
        self.wire.to_client.clear()
        return told


@pytest.mark.parametrize(
    ("consumers", "batch"),
    first_core([(1, 1000), (4, 100_000), (1, 100_000), (4, 1000), (16, 1000), (16, 100_000)], 2),
)
def test_parallel_share_consumers_get_their_quota_together(consumers: int, batch: int) -> None:
    """From a full broker, which delivers whole batches, and at least one."""
    rate, minutes, delivered = 100_000, 4, 0
    quotas = BrokerQuotas.create(quota_table(fetch=rate))
    clients = [Consumer(quotas) for _ in range(consumers)]
    events = [(number, number, -1) for number in range(consumers)]
    while (event := heapq.heappop(events))[0] < minutes * 60_000:
        now_ms, number, size = event
        if size < 0:
            most = clients[number].poll(now_ms)
            heapq.heappush(events, (now_ms + ROUND_TRIP_MS, number, most and max(most // batch, 1) * batch))
        else:
            delivered += size
            wait_ms = clients[number].receive(now_ms, size)
            heapq.heappush(events, (now_ms + max(wait_ms, 1), number, -1))
    assert 0.98 < delivered / (rate * minutes * 60) < 1.12  # one window at once, 10 s, is free
