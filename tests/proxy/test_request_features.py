"""What looking into produce requests and fetches adds to their cost, in every version, cut and malformed."""

from __future__ import annotations

import base64
import json
import struct
import uuid
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.matrix import in_one_test
from tests.proxy.request_costs import EACH_US, charged_us, costs, timed
from tests.proxy.wire import Wire, new_connection, quota_table
from tests.wire.frames import request
from weir.protocol.api import ApiKey, is_flexible
from weir.protocol.messages import FetchRequest, ProduceRequest
from weir.protocol.values import schema_of
from weir.protocol.versions import VersionRange
from weir.proxy.connection.in_flight import RequestInFlight
from weir.proxy.counters import Counters
from weir.proxy.handlers.plan import Plan
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.request_time.request_features import PACKED_MAX, PARTITIONS_MAX, converted, extra
from weir.quotas.costs.request_costs import ApiCost

PRODUCE: Final = list(schema_of(ProduceRequest).versions)
FETCH: Final = list(schema_of(FetchRequest).versions)
SESSIONS: Final = [version for version in FETCH if version >= 7]
ACKS_US, PARTITION_US, GZIP_US, SNAPPY_US, FETCH_US = 1000.0, 10.0, 3.0, 2.0, 50.0
COST: Final = ApiCost(
    us=0.0,
    us_acks_all=ACKS_US,
    us_per_partition=PARTITION_US,
    us_per_unpacked_kb={"gzip": GZIP_US, "snappy": SNAPPY_US},
)
FETCH_COST: Final = ApiCost(us=0.0, us_per_session_kb=FETCH_US)

PACKED: Final = json.loads(
    (Path(__file__).parents[1] / "protocol" / "data" / "packed_batches.json").read_text()
)
"""Batches as producers pack them; see `test_unpacked_sizes`."""


def packed(codec: str, magic: int = 2) -> tuple[bytes, float]:
    """A batch of 100 JSON records, and how many kB they have unpacked, with three times the packed ones."""
    for one in PACKED:
        if (one["records"], one["codec"], one["magic"]) == ("100 JSON", codec, magic):
            batch = base64.b64decode(one["batch"])
            return batch, (one["unpacked_bytes"] + 3 * (len(batch) - 61)) / 1000
    raise AssertionError(codec)


def plain_batch(length: int = 200) -> bytes:
    """A batch of magic 2 that is not packed; what is in it does not matter."""
    return struct.pack(">qiibIh", 0, length - 12, -1, 2, 0, 0).ljust(length, b"r")


def plan_of(api_key: int, version: int) -> Plan:
    return Plan(api_key, version, flexible_request=is_flexible(api_key, version))


def produce(version: int, *topics: list[bytes], acks: int = 1, client_id: bytes | None = b"app") -> bytearray:
    message = ProduceRequest(
        acks=acks,
        topic_data=[
            ProduceRequest.TopicProduceData(
                name=f"topic-{number}" if version < 13 else "",
                topic_id=uuid.UUID(int=number + 1) if version >= 13 else uuid.UUID(int=0),
                partition_data=[
                    ProduceRequest.PartitionProduceData(index=index, records=records)
                    for index, records in enumerate(partitions)
                ],
            )
            for number, partitions in enumerate(topics)
        ],
    )
    return bytearray(request(message, version, client_id=client_id))


class Looks:
    def __init__(self, api_key: int, version: int, cost: ApiCost) -> None:
        look = extra(plan_of(api_key, version), cost)
        assert look is not None
        self._look = look
        self._connection = new_connection(quota_table())

    def us(self, frame: bytearray, end: int | None = None) -> float:
        data = bytearray(b"before" + frame[:end] + b"\xff" * 64)
        asked = RequestInFlight(self._connection.plans.make(ApiKey.PRODUCE, 3))
        return self._look(self._connection, asked, data, 6, 6 + len(frame[:end]))


def produced_us(version: int, frame: bytearray, end: int | None = None) -> float:
    return Looks(ApiKey.PRODUCE, version, COST).us(frame, end)


# Produce


@pytest.mark.parametrize("version", PRODUCE)
def test_produce_with_acks_all_costs_more(version: int) -> None:
    looks = Looks(ApiKey.PRODUCE, version, COST)
    for _ in range(3):  # the second time it is known
        assert looks.us(produce(version, [plain_batch()], acks=-1)) == ACKS_US
        assert looks.us(produce(version, [plain_batch()], acks=1)) == 0.0


@in_one_test
@pytest.mark.parametrize("version", PRODUCE)
@pytest.mark.parametrize("topics", [[1], [2], [40], [500], [1, 1], [3, 1, 2], [1] * 30])
def test_every_partition_of_a_produce_request_beyond_the_first_costs_more(
    version: int, topics: list[int]
) -> None:
    frame = produce(version, *([plain_batch(70)] * count for count in topics))
    assert produced_us(version, frame) == PARTITION_US * (sum(topics) - 1)


@in_one_test
@pytest.mark.parametrize("version", PRODUCE)
@pytest.mark.parametrize(("codec", "us_per_kb"), [("gzip", GZIP_US), ("snappy", SNAPPY_US), ("lz4", 0.0)])
def test_compressed_batches_are_charged_their_unpacked_size(
    version: int, codec: str, us_per_kb: float
) -> None:
    batch, kb = packed(codec)
    us = us_per_kb * kb
    assert produced_us(version, produce(version, [batch])) == pytest.approx(us)
    both = produce(version, [plain_batch(), batch], [batch])
    assert produced_us(version, both) == pytest.approx(2 * us + 2 * PARTITION_US)


@pytest.mark.parametrize("version", PRODUCE)
def test_the_compression_of_many_partitions_is_extrapolated(version: int) -> None:
    batch, kb = packed("gzip")
    for count in (PACKED_MAX - 1, PACKED_MAX, PACKED_MAX + 1, 3 * PARTITIONS_MAX):
        us = produced_us(version, produce(version, [batch] * count))
        assert us - PARTITION_US * (count - 1) == pytest.approx(GZIP_US * kb * count, rel=0.05)


@pytest.mark.parametrize("version", PRODUCE)
def test_the_cost_of_a_cut_produce_request_is_extrapolated(version: int) -> None:
    batch, kb = packed("snappy")
    frame = produce(version, [batch] * 30, acks=-1)
    us = produced_us(version, frame, len(frame) // 3)
    assert us - ACKS_US - 29 * PARTITION_US == pytest.approx(SNAPPY_US * kb * 30, rel=0.05)


Batches = st.sampled_from(
    [
        plain_batch(70),
        plain_batch(300),
        plain_batch(20_000),
        packed("gzip")[0],
        packed("snappy")[0],
        b"",
        b"x",
    ]
)


@pytest.mark.parametrize("version", PRODUCE)
@settings(max_examples=10)
@given(
    requests=st.lists(
        st.tuples(
            st.lists(st.lists(Batches, min_size=1, max_size=2), min_size=1, max_size=2),
            st.sampled_from([-1, 1]),
            st.sampled_from([b"app", b"other", None, b"i" * 2000]),
            st.none() | st.integers(0, 400),
        ),
        max_size=8,
    )
)
def test_cached_request_features_equal_a_fresh_scan(
    version: int, requests: list[tuple[list[list[bytes]], int, bytes | None, int | None]]
) -> None:
    looks = Looks(ApiKey.PRODUCE, version, COST)
    for topics, acks, client_id, end in requests:
        frame = produce(version, *topics, acks=acks, client_id=client_id)
        assert looks.us(frame, end) == produced_us(version, frame, end)


@pytest.mark.parametrize("count", [2**31 - 1, 1_000_000, -1])
def test_the_cost_of_claimed_partitions_is_bounded_by_the_requests_length(count: int) -> None:
    """A broker refuses it; here it may cost no more than if it were true."""
    frame = produce(3, [plain_batch()])
    at = frame.index(b"topic-0") + len(b"topic-0")
    for place in (at, at - 9 - 4):  # partitions, topics
        claimed = bytearray(frame)
        struct.pack_into(">i", claimed, place, count)
        assert 0 <= produced_us(3, claimed) <= PARTITION_US * len(frame)


# Fetch


def fetch(version: int, epoch: int, partitions: int = 0, tags: bytes = b"\x00") -> bytearray:
    named = version < 13
    message = FetchRequest(
        session_id=7 if epoch > 0 else 0,
        session_epoch=epoch,
        topics=[
            FetchRequest.FetchTopic(
                topic="topic" if named else "",
                topic_id=uuid.UUID(int=0 if named else 1),
                partitions=[FetchRequest.FetchPartition(partition=number) for number in range(partitions)],
            )
        ]
        if partitions
        else [],
    )
    return bytearray(request(message, version, tags=tags))


@pytest.mark.parametrize("version", SESSIONS)
def test_an_incremental_fetch_costs_as_much_as_its_sessions_first_fetch(version: int) -> None:
    looks = Looks(ApiKey.FETCH, version, FETCH_COST)
    full, empty, some = fetch(version, 0, 100), fetch(version, 1), fetch(version, 2, 40)
    assert looks.us(full) == 0.0
    for frame in (empty, some, empty):
        assert looks.us(frame) == pytest.approx(FETCH_US * (len(full) - len(frame)) / 1000)
    assert looks.us(fetch(version, 5, 200)) == 0.0  # it has grown
    assert looks.us(empty) == pytest.approx(FETCH_US * (len(fetch(version, 5, 200)) - len(empty)) / 1000)
    assert looks.us(fetch(version, 0, 3)) == 0.0  # a new one
    assert looks.us(empty) == pytest.approx(FETCH_US * (len(fetch(version, 0, 3)) - len(empty)) / 1000)


@pytest.mark.parametrize("version", [version for version in SESSIONS if version >= 12])
def test_tagged_fields_in_a_header_do_not_hide_a_fetch_session(version: int) -> None:
    looks = Looks(ApiKey.FETCH, version, FETCH_COST)
    full = fetch(version, 0, 100, tags=b"\x01\x05\x03abc")
    assert looks.us(full) == 0.0
    assert looks.us(fetch(version, 1, tags=b"\x01\x05\x03abc")) > 0.0


@in_one_test
@pytest.mark.parametrize(
    ("version", "newest", "expected"),
    [
        *((0, newest, True) for newest in (2, 3, 4, 7, 17, None)),
        *((1, newest, True) for newest in (2, 3, 4, 7, 17, None)),
        *((2, newest, False) for newest in (2, 3)),
        *((version, newest, True) for version in (2, 3) for newest in (4, 7, 17, None)),
        *((version, 17, False) for version in range(4, 18)),
        (0, 1, False),
        (1, 1, False),
    ],
)
def test_fetches_below_the_brokers_record_format_are_converted(
    version: int, newest: int | None, expected: bool
) -> None:
    """0.10.0, which has fetch v2, stores magic 1; 0.11, which has v4 and v5, magic 2 (KIP-31, KIP-98).
    KafkaApis converts for v0 and v1 to magic 0, for v2 and v3 to magic 1.
    """
    assert converted(version, newest) is expected


# Anything


# In a connection


def test_a_connection_charges_the_scanned_request_features() -> None:
    batch, kb = packed("gzip")
    connection = timed(costs_=costs({"Produce": COST, "Fetch": FETCH_COST}))
    wire = Wire(connection)
    wire.feed(0, client=bytes(produce(3, [batch, batch], acks=-1)))
    connection.end(0)
    assert charged_us(connection) == pytest.approx(ACKS_US + PARTITION_US + 2 * GZIP_US * kb, abs=0.01)
    assert EACH_US not in (COST.us, FETCH_COST.us)


def test_a_converted_fetch_costs_more_per_kb() -> None:
    api = ApiCost(us=1.0, us_per_response_kb=2.0, us_per_converted_kb=5.0)
    plans = Plans(Counters(), costs=costs({"Fetch": api})).for_broker({1: VersionRange(0, 3)})
    for version, per_kb in ((1, 7.0), (3, 2.0)):
        cost = plans.make(ApiKey.FETCH, version).cost
        assert cost is not None
        assert cost.us_per_response_byte == per_kb / 1000
