"""Packed records whose framing hides their size: a client may save at most half of the broker's time so.

The truth is known, because each stream is made of so many bytes; the broker's time is that size by the
codec's coefficient. A broker here answers as late as its work takes.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from math import ceil
from pathlib import Path
from random import Random
from typing import Any, Final, Literal, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proxy.request_costs import charged_us, costs, time_table, timed
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import request, response
from tests.wire.packed import (
    ATTACKS,
    MB,
    Stream,
    attack,
    batch,
    gzip_stream,
    noise,
    snappy_stream,
    zstd_stream,
)
from weir.protocol.api import ApiKey
from weir.protocol.messages import ProduceRequest, ProduceResponse
from weir.protocol.scanning.record_batches import add_unpacked
from weir.protocol.scanning.unpacked_sizes import CONFIRMED_MAX, GZIP, is_gzip_size_false, unpacked_bytes
from weir.proxy.connection.connection import Connection
from weir.proxy.connection.in_flight import RequestInFlight
from weir.proxy.handlers.plan import Plan
from weir.proxy.handlers.request_time.request_features import CONFIRMED_EVERY, PACKED_MAX, extra
from weir.quotas.costs.cost import UNANSWERED_US, WAIT_US, confirmed_us
from weir.quotas.costs.request_costs import CODECS, ApiCost

Codec: TypeAlias = Literal["gzip", "snappy", "lz4", "zstd"]
PACKED: Final[list[dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "protocol" / "data" / "packed_batches.json").read_text()
)
"""Batches of real producers; see `test_unpacked_sizes`."""
VERSION: Final = 8
US: Final = 50.0
US_PER_KB: Final[dict[Codec, float]] = {"gzip": 1.87, "snappy": 0.286, "lz4": 0.0779, "zstd": 0.178}
COST: Final = ApiCost(us=US, us_per_request_kb=3.0, us_per_unpacked_kb=US_PER_KB)
UNCONFIRMED: Final = [name for name in ATTACKS if "forged size" not in name or "above" in name]
"""Attacks that each request is charged for; the others are found out once in a while."""


def name_of(one: dict[str, Any]) -> str:
    return f"{one['producer']}-{one['records']}-{one['codec']}"


def plain_batch(length: int = 200) -> bytes:
    return struct.pack(">qiibIh", 0, length - 12, -1, 2, 0, 0).ljust(length, b"r")


def produce(*batches: bytes, acks: int = 1) -> bytes:
    partitions = [
        ProduceRequest.PartitionProduceData(index=index, records=records)
        for index, records in enumerate(batches)
    ]
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=partitions)
    return request(ProduceRequest(acks=acks, topic_data=[topic]), VERSION)


def true_us(stream: Stream, frame: bytes) -> float:
    work_kb = (stream.truth + 3 * len(stream.packed)) / 1000
    return US + 3.0 * (len(frame) - 4) / 1000 + US_PER_KB[CODECS[stream.codec - 1]] * work_kb


def connected() -> tuple[Connection, Wire]:
    connection = timed(time_table(1e9), costs({"Produce": COST}))
    return connection, Wire(connection)


def answer_at(connection: Connection, wire: Wire, us: float, answers: int = 1) -> None:
    """Have the broker answer at this time (µs)."""
    connection.clock.now_us = ceil(us)
    wire.feed(int(us) // 1000, broker=response(ProduceResponse(), VERSION) * answers)


def charged_for(frame: bytes, latency_us: float, cut: int | None = None) -> float:
    """The charge (µs) of a request whose first bytes up to `cut` arrive alone."""
    connection, wire = connected()
    for piece in (frame[:cut], frame[cut:] if cut else b""):
        wire.feed(0, client=piece)
    answer_at(connection, wire, latency_us)
    return charged_us(connection)


class Looks:
    def __init__(self, seed: int = 1) -> None:
        look = extra(Plan(ApiKey.PRODUCE, VERSION), COST, Random(seed))
        assert look is not None
        self._look = look

    def us(self, frame: bytes) -> tuple[float, float]:
        """The additional cost, and by how much it may be too low."""
        asked = RequestInFlight(Plan(ApiKey.PRODUCE, VERSION))
        return self._look(new_connection(), asked, bytearray(frame), 0, len(frame)), asked.unconfirmed_us


# One request


@pytest.mark.parametrize("cut", [None, 70_000], ids=["whole", "cut"])
@pytest.mark.parametrize("name", UNCONFIRMED)
def test_packed_records_are_charged_half_of_their_true_cost_or_more(name: str, cut: int | None) -> None:
    stream = attack(name)
    frame = produce(batch(stream))
    us = true_us(stream, frame)
    assert (us - WAIT_US) / 2 <= charged_for(frame, us, cut) <= 1.05 * us


@pytest.mark.parametrize("name", sorted(set(ATTACKS) - set(UNCONFIRMED)))
def test_forged_gzip_sizes_are_charged_their_true_cost_on_average(name: str) -> None:
    stream = attack(name)
    frame, looks = produce(batch(stream)), Looks()
    count = 20 * CONFIRMED_EVERY
    found = sum(looks.us(frame)[0] for _ in range(count)) / count
    _, unconfirmed_us = looks.us(frame)
    assert found >= US_PER_KB["gzip"] * stream.truth / 1000 / 2 or unconfirmed_us >= found


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(ATTACKS) - set(UNCONFIRMED)))
@pytest.mark.parametrize(("quota_us", "worst"), [(600_000.0, 5.0), (6_000_000.0, 2.0)], ids=["1%", "10%"])
def test_forged_gzip_sizes_take_a_few_times_the_request_time_of_a_minute(
    name: str, quota_us: float, worst: float
) -> None:
    """A forged size is found in one request of 16: a client may send more before that, but not for long."""
    stream = attack(name)
    frame = bytearray(produce(batch(stream)))
    known_us, truth_us = US + 3.0 * (len(frame) - 4) / 1000, true_us(stream, bytes(frame))
    taken = []
    for seed in range(30):
        look, connection = extra(Plan(ApiKey.PRODUCE, VERSION), COST, Random(seed)), new_connection()
        assert look is not None
        charged = spent = 0.0
        while charged < quota_us:
            asked = RequestInFlight(Plan(ApiKey.PRODUCE, VERSION))
            charged += known_us + look(connection, asked, frame, 0, len(frame))
            spent += truth_us
        taken.append(spent / quota_us)
    assert sum(taken) / len(taken) <= 1.3
    assert max(taken) <= worst


def test_a_bomb_among_many_partitions_is_charged_on_average_wherever_it_is() -> None:
    """Only some of the packed partitions are read; which ones, the client cannot know."""
    bomb, small = snappy_stream(b"", 6 * MB), zstd_stream(b"", 2000)
    batches = [batch(small)] * (3 * PACKED_MAX)
    for place in (0, PACKED_MAX + 1, 3 * PACKED_MAX - 1):
        frame = produce(*batches[:place], batch(bomb), *batches[place + 1 :])
        looks = Looks(seed=place)
        found = sum(looks.us(frame)[0] for _ in range(400)) / 400
        assert found == pytest.approx((0.286 * bomb.truth + 0.178 * 47 * 2000) / 1000, rel=0.25)


def test_a_bomb_behind_plain_partitions_is_charged_half_of_its_cost_or_more() -> None:
    """Behind what is read before the request is forwarded."""
    bomb = gzip_stream(b"", 20 * MB)
    frame = produce(*[plain_batch(70_000)] * 4, batch(bomb))
    us = true_us(bomb, frame)
    assert (us - WAIT_US) / 2 <= charged_for(frame, us, 70_000) <= us


# Latencies


@settings(max_examples=75)
@given(us=st.floats(0, 1e6), unconfirmed_us=st.floats(0, 1e9), latency_us=st.floats(0, 1e8))
def test_a_confirmed_cost_is_between_half_of_the_latency_and_all_of_it(
    us: float, unconfirmed_us: float, latency_us: float
) -> None:
    found = confirmed_us(us, unconfirmed_us, latency_us)
    assert found <= max(latency_us, WAIT_US)
    assert found >= min(us, latency_us)
    assert found >= min((latency_us - WAIT_US) / 2, us + unconfirmed_us)
    assert found <= us + unconfirmed_us


@pytest.mark.parametrize("kb", [5, 50, 150, 240])
@pytest.mark.parametrize("latency_us", [300.0, 50_000.0, 5_000_000.0])
def test_honest_records_at_hand_cost_the_same_however_late_the_answer(kb: int, latency_us: float) -> None:
    text = b"".join(b"%d is a line of a log\n" % number for number in range(150 * kb))[: 4000 * kb]
    stream = gzip_stream(text[:CONFIRMED_MAX], 0)
    frame = produce(batch(stream))
    assert charged_for(frame, latency_us) == pytest.approx(true_us(stream, frame), rel=0.01)


@pytest.mark.parametrize("one", [one for one in PACKED if one["magic"] == 2][::4], ids=name_of)
def test_batches_of_real_producers_need_no_latency(one: dict[str, Any]) -> None:
    """One of them or many in a request, and each time: what is confirmed at random is true."""
    records = base64.b64decode(one["batch"])
    looks = Looks()
    for count in (1, 8, 2 * PACKED_MAX):
        frame = produce(*[records] * count)
        found = {looks.us(frame) for _ in range(2 * CONFIRMED_EVERY)}
        assert len(found) == 1
        assert found.pop()[1] == 0.0


def test_pipelined_requests_are_charged_their_common_latency_once() -> None:
    stream = attack("gzip with a random lead")
    frame = produce(batch(stream))
    us = true_us(stream, frame)
    connection, wire = connected()
    wire.feed(0, client=frame * 3)
    for number in (1, 2, 3):
        answer_at(connection, wire, number * us)
    assert 3 * (us - 3 * WAIT_US) / 2 <= charged_us(connection) <= 3 * us


def test_answers_that_arrive_together_are_charged_the_latency_of_all_of_them() -> None:
    """A client that does not read its answers would have them come at the same time."""
    stream, tiny = attack("gzip with a random lead"), gzip_stream(noise(100_000), 1000, claim=2 * MB)
    frames = produce(batch(tiny)), produce(batch(stream))
    us = true_us(stream, frames[1])
    connection, wire = connected()
    for frame in frames:
        for piece in (frame[:70_000], frame[70_000:]):
            wire.feed(0, client=piece)
    answer_at(connection, wire, us, answers=2)
    assert (us - 2 * WAIT_US) / 2 <= charged_us(connection) <= 1.1 * us


def test_closing_before_the_response_does_not_avoid_the_charge_of_unconfirmed_records() -> None:
    connection, wire = connected()
    frame = produce(batch(attack("gzip with a random lead")))
    wire.feed(0, client=frame[:70_000])
    wire.feed(0, client=frame[70_000:])
    connection.end(0)
    assert UNANSWERED_US <= charged_us(connection) <= UNANSWERED_US + 2000


def test_the_doubt_about_one_request_does_not_pass_to_the_next() -> None:
    connection, wire = connected()
    frame, plain = produce(batch(attack("zstd of repeated bytes"))), produce(plain_batch())
    wire.feed(0, client=frame)
    answer_at(connection, wire, 30_000)
    before = charged_us(connection)
    wire.feed(30, client=plain)
    answer_at(connection, wire, 1_000_000)
    assert charged_us(connection) - before == pytest.approx(US + 3.0 * (len(plain) - 4) / 1000)


# Sizes


@pytest.mark.parametrize("name", ATTACKS)
def test_the_bound_of_an_unpacked_size_is_never_exceeded(name: str) -> None:
    stream = attack(name)
    length = len(stream.packed)
    for end in {length, length // 2, min(length, 70_000), 10}:
        estimate, bound = unpacked_bytes(stream.codec, bytearray(stream.packed), 0, length, end)
        assert estimate <= bound
        if "forged size" in name and "above" not in name and end == length:
            assert is_gzip_size_false(bytearray(stream.packed), 0, length)
        else:
            assert bound >= stream.truth


@settings(max_examples=50)
@given(lead=st.integers(0, 3000), zeros=st.integers(0, 300_000), raw=st.integers(1, 400), cut=st.floats(0, 1))
def test_zstd_bounds_hold_for_any_mixture_of_blocks(lead: int, zeros: int, raw: int, cut: float) -> None:
    stream = zstd_stream(noise(lead), zeros, raw)
    length = len(stream.packed)
    _, bound = unpacked_bytes(stream.codec, bytearray(stream.packed), 0, length, int(cut * length))
    assert bound >= stream.truth


@settings(max_examples=25)
@given(parts=st.lists(st.integers(0, 3000), min_size=1, max_size=3), change=st.integers(-3000, 3000))
def test_a_gzip_size_is_false_only_if_the_stream_has_more(parts: list[int], change: int) -> None:
    """Of streams of several members nothing is said: the size is that of the last one."""
    stream = b"".join(gzip_stream(noise(part), part).packed for part in parts)
    claim = int.from_bytes(stream[-4:], "little") + change
    if claim < 0:
        return
    forged = bytearray(stream[:-4] + claim.to_bytes(4, "little"))
    assert is_gzip_size_false(forged, 0, len(forged)) == (change < 0 and len(parts) == 1)


def test_confirming_a_gzip_size_unpacks_no_more_than_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    class Watched:
        def __init__(self, bits: int) -> None:
            self._unpacker = decompressobj(bits)

        def decompress(self, data: bytes, most: int) -> bytes:
            asked.append(most)
            return self._unpacker.decompress(data, most)

    decompressobj = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", Watched)
    for claim in (0, 1000, CONFIRMED_MAX, CONFIRMED_MAX + 1):
        stream = bytearray(gzip_stream(b"", 30 * MB, claim).packed)
        is_gzip_size_false(stream, 0, len(stream))
    assert asked == [1, 1001, CONFIRMED_MAX + 1]


def test_a_false_gzip_size_counts_for_the_batches_that_were_not_confirmed() -> None:
    stream = attack("gzip with a forged size")
    data = bytearray(batch(stream))
    unpacked, bounds = [0.0] * 5, [0.0] * 5
    add_unpacked(data, 0, len(data), len(data), unpacked, bounds, 16)
    assert unpacked[GZIP] == bounds[GZIP] == 16 * 1040 * len(stream.packed)
