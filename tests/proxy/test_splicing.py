"""The rest of a large frame passes within the kernel: same bytes, charges and ends as when it is copied."""

from __future__ import annotations

import errno
import os
import random
import stat
from collections.abc import Iterator
from typing import Final

import pytest

from tests.proxy.rigs import PAIRS, Rig, reset, tcp_pair, unix_pair
from tests.proxy.wire import quota_table
from tests.wire.frames import request, response
from weir.protocol.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from weir.proxy.close_reasons import CloseReason
from weir.proxy.net.splicing import SPLICED_BYTES_MIN, PipeError, Splicer, TargetError

LARGE: Final = 2_000_000
FREE: Final = quota_table(1e12, 1e12)


class Moves:
    """The number of bytes of each splice from a socket. Replaces the function of `os`, because methods of
    compiled classes cannot be replaced.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes: list[int] = []
        splice = os.splice

        def noted(source: int, target: int, count: int, *, flags: int) -> int:
            moved = splice(source, target, count, flags=flags)
            if not stat.S_ISFIFO(os.fstat(source).st_mode):
                self.bytes.append(moved)
            return moved

        monkeypatch.setattr(os, "splice", noted)


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> Moves:
    return Moves(monkeypatch)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(FREE, pair=tcp_pair)
    yield made
    made.close()


def produce(size: int, number: int = 1) -> bytes:
    partition = ProduceRequest.PartitionProduceData(records=os.urandom(size))
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[partition])
    return request(ProduceRequest(acks=1, topic_data=[topic]), 9, number, b"app")


def produced(number: int = 1) -> bytes:
    return response(ProduceResponse(), 9, number)


def fetch(number: int = 1) -> bytes:
    return request(FetchRequest(max_bytes=2**31 - 1), 17, number, b"app")


def fetched(sizes: list[int], number: int = 1, *, addresses: bool = False) -> bytes:
    partitions = [FetchResponse.PartitionData(records=os.urandom(size)) for size in sizes]
    value = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=partitions)])
    if addresses:
        value.node_endpoints = [FetchResponse.NodeEndpoint(node_id=1, host="kafka", port=9092)]
    return response(value, 17, number)


def test_most_bytes_of_a_large_produce_request_are_not_copied(rig: Rig, moves: Moves) -> None:
    frame = produce(LARGE)
    assert rig.pass_on(frame, rig.client, rig.broker) == frame
    assert sum(moves.bytes) > LARGE / 2
    assert rig.pass_on(produced(), rig.broker, rig.client) == produced()


def test_most_bytes_of_a_large_fetch_response_are_not_copied(rig: Rig, moves: Moves) -> None:
    rig.expect(rig.broker, rig.send(rig.client, fetch()) or fetch())
    frame = fetched([LARGE])
    assert rig.pass_on(frame, rig.broker, rig.client) == frame
    assert sum(moves.bytes) > LARGE / 2


def test_addresses_behind_spliced_records_are_hidden(rig: Rig, moves: Moves) -> None:
    rig.expect(rig.broker, rig.send(rig.client, fetch()) or fetch())
    frame = fetched([LARGE, 10, LARGE], addresses=True)
    received = rig.pass_on(frame, rig.broker, rig.client)
    assert sum(moves.bytes) > LARGE
    assert len(received) == len(frame)
    assert b"kafka" not in received
    assert received[: 2 * LARGE] == frame[: 2 * LARGE]


@pytest.mark.parametrize("pair", list(PAIRS))
@pytest.mark.parametrize("seed", range(6))
def test_spliced_bytes_arrive_and_are_charged_like_copied_ones(pair: str, seed: int, moves: Moves) -> None:
    """Frames of all sizes, both ways; unix sockets take little at a time, so bytes stay in the pipe."""
    outcomes = []
    for works in (True, False):
        chance = random.Random(seed)
        rig = Rig(FREE, pair=PAIRS[pair])
        rig.reactor.splicer.works = works
        try:
            outcomes.append(_converse(rig, chance))
        finally:
            rig.close()
        if works:
            assert any(count >= SPLICED_BYTES_MIN for count in moves.bytes) or pair == "unix"
            assert moves.bytes
            moves.bytes.clear()
    assert not moves.bytes
    assert outcomes[0] == outcomes[1]


def _converse(rig: Rig, chance: random.Random) -> tuple[object, ...]:
    sizes = [chance.choice([10, 60_000, 70_000, 262_144, 300_000, 600_000]) for _ in range(12)]
    for number, size in enumerate(sizes):
        asked, answer = produce(size, number), produced(number)
        if chance.random() < 0.5:
            asked, answer = fetch(number), fetched([size, 10, chance.choice([0, size])], number)
        assert rig.pass_on(asked, rig.client, rig.broker) == asked
        assert rig.pass_on(answer, rig.broker, rig.client) == answer
    assert rig.reason is None
    assert rig.relay.held_bytes == 0
    quotas = rig.connection.quotas
    charged = [budget.charged for kind in (quotas.produce, quotas.fetch) for budget in kind]
    assert sum(charged) > sum(sizes)
    return rig.relay.received_bytes, charged


def test_a_kernel_that_refuses_to_splice_has_bytes_copied(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object, **_options: object) -> int:
        raise OSError(errno.EINVAL, "no splice here")

    monkeypatch.setattr(os, "splice", refuse)
    frame = produce(LARGE)
    assert rig.pass_on(frame, rig.client, rig.broker) == frame
    assert not rig.reactor.splicer.works


def test_a_client_that_leaves_within_spliced_bytes_ends_its_relay(rig: Rig, moves: Moves) -> None:
    frame = produce(LARGE)
    rig.pass_on(frame[: LARGE // 2], rig.client, rig.broker)
    assert moves.bytes
    rig.client.close()
    assert rig.end() is CloseReason.CLIENT_CLOSED


def test_a_broker_that_resets_within_spliced_bytes_ends_its_relay(rig: Rig) -> None:
    frame = produce(LARGE)
    rig.pass_on(frame[: LARGE // 2], rig.client, rig.broker)
    reset(rig.broker)
    rig.send(rig.client, frame[LARGE // 2 :])
    assert rig.end() is CloseReason.BROKER_RESET


def test_the_pipe_is_empty_after_a_target_took_only_a_part() -> None:
    splicer, (source, behind_source), (target, far) = Splicer(), tcp_pair(), unix_pair()
    data = os.urandom(100_000)
    source.sendall(data)
    taken, rest = splicer.move(behind_source.fileno(), target.fileno(), len(data))
    assert rest
    assert far.recv(len(data)) + rest == data[:taken]
    with pytest.raises(BlockingIOError):
        os.read(splicer._out, 1)
    splicer.close()
    for sock in (source, behind_source, target, far):
        sock.close()


def test_the_pipe_is_empty_after_a_target_broke() -> None:
    splicer, (source, behind_source), (target, far) = Splicer(), tcp_pair(), unix_pair()
    source.sendall(b"x" * 1000)
    far.close()
    with pytest.raises(TargetError, match="Broken pipe"):
        splicer.move(behind_source.fileno(), target.fileno(), 1000)
    with pytest.raises(BlockingIOError):
        os.read(splicer._out, 1)
    splicer.close()
    for sock in (source, behind_source, target):
        sock.close()


@pytest.mark.parametrize(
    ("failed", "error"),
    [
        *((failed, error) for failed in ("splice", "read") for error in (MemoryError(), KeyboardInterrupt())),
        *(("read", error) for error in (BlockingIOError(), OSError(errno.EIO, "?"))),
    ],
)
def test_bytes_of_one_client_never_reach_another_after_an_exception(
    failed: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception comes while bytes of the first client are in the pipe: from the second splice, or from
    reading the bytes that the target did not take.
    """
    splicer, pairs = Splicer(), [tcp_pair() for _ in range(4)]
    (source, behind_source), (target, _far), (other, behind_other), (third, far_third) = pairs
    source.sendall(b"secret")
    splice = os.splice

    def fail(*arguments: int, flags: int) -> int:
        if arguments[1] == target.fileno():
            raise error if failed == "splice" else BlockingIOError
        source, target_or_pipe, count = arguments
        return splice(source, target_or_pipe, count, flags=flags)

    def unread(*_arguments: int) -> bytes:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(os, "splice", fail)
        patched.setattr(os, "read", unread)
        with pytest.raises(PipeError if isinstance(error, OSError) else type(error)):
            splicer.move(behind_source.fileno(), target.fileno(), 100)
    other.sendall(b"public")
    assert splicer.move(behind_other.fileno(), third.fileno(), 100) == (6, b"")
    assert far_third.recv(100) == b"public"
    splicer.close()
    for sock in (sock for pair in pairs for sock in pair):
        sock.close()


def test_without_a_descriptor_for_the_pipe_bytes_are_copied_until_there_is_one(
    rig: Rig, moves: Moves, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_flags: int) -> tuple[int, int]:
        raise OSError(errno.EMFILE, "too many open files")

    frame = produce(LARGE)
    with monkeypatch.context() as patched:
        patched.setattr(os, "pipe2", refuse)
        assert rig.pass_on(frame, rig.client, rig.broker) == frame
    assert not moves.bytes
    assert rig.pass_on(produced(), rig.broker, rig.client) == produced()
    assert rig.pass_on(frame, rig.client, rig.broker) == frame
    assert sum(moves.bytes) > LARGE / 2


def test_the_end_of_a_source_is_told_by_zero_bytes() -> None:
    splicer, (source, behind_source), (target, far) = Splicer(), tcp_pair(), tcp_pair()
    source.close()
    assert splicer.move(behind_source.fileno(), target.fileno(), 10) == (0, b"")
    splicer.close()
    for sock in (behind_source, target, far):
        sock.close()
