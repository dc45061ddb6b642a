"""The part `replication` of the benchmark: a follower's fetches, and their targets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bench import broker, document, render, report
from bench.canned import REPLICATED, SESSION_ID, TOPIC_IDS, TOPICS, Answers
from bench.entry import receive_frame
from bench.frames import METADATA_VERSION, Request, request
from bench.load import Load, LoadError, Measured, Order, generate
from bench.measure import Results
from bench.replication import fetches, leader, targets, toll
from bench.replication.follower import SESSION_ID as PLACEHOLDER
from bench.replication.follower import measure
from bench.replication.rows import ROWS, FollowerRow
from bench.targets import TARGETS
from weir.calibration import bodies
from weir.protocol import ApiKey, codec
from weir.protocol.framing import request_body
from weir.protocol.messages import FetchRequest, FetchResponse, MetadataResponse
from weir.proxy.handlers.replication.replica_fetches import replica_fetch_test
from weir.quotas import parse
from weir.quotas.replication.throttles import Role

PORT = 9092
ROW = ROWS[2]
NOT_FOUND, INVALID_EPOCH, NOT_LEADER = 70, 71, 6


def decoded(frame: bytes) -> FetchRequest:
    return codec(FetchRequest, 17).decode(frame, request_body(frame, 0, len(frame), flexible=True))


def answer(frame: bytes) -> FetchResponse:
    message = Request(ApiKey.FETCH, 17, b"").response(Answers(PORT).frame(frame))
    assert isinstance(message, FetchResponse)
    return message


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_followers_frames_are_replica_fetches_of_one_session(row: FollowerRow) -> None:
    frames = row.frames(TOPICS)
    full, incremental = map(decoded, frames)
    assert (full.session_id, full.session_epoch) == (0, 0)
    assert incremental.session_id.to_bytes(4, "big") == PLACEHOLDER
    assert len(full.topics[0].partitions) == row.partitions
    assert len(incremental.topics[0].partitions) == row.with_records
    for frame in frames:
        is_replica = replica_fetch_test(17, flexible=True)
        assert is_replica(bytearray(frame), 0, len(frame), True)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_stub_broker_sends_the_records_of_a_followers_load(row: FollowerRow) -> None:
    for frame, partitions in zip(row.frames(TOPICS), (row.partitions, row.with_records), strict=True):
        message = answer(frame)
        (topic,) = message.responses
        size = sum(len(data.records or b"") for data in topic.partitions)
        assert message.session_id == SESSION_ID
        assert len(topic.partitions) == partitions
        assert row.payload_bytes <= size < row.payload_bytes + 100 * row.with_records


def test_the_stub_broker_builds_one_answer_for_all_epochs_of_a_session() -> None:
    answers = Answers(PORT)
    frame = bytearray(ROW.frames(TOPICS)[1])
    at = frame.index(PLACEHOLDER) + 4
    found = set()
    for epoch in (1, 2, 3):
        frame[at : at + 4] = epoch.to_bytes(4, "big")
        found.add(answers.frame(bytes(frame)))
    assert len(found) == len(answers._built) == 1


@contextmanager
def stub_leader(*codes: int, size: int = ROW.payload_bytes, session_id: int = 7) -> Iterator[Stub]:
    """A leader on a port of its own, whose first responses have these error codes."""
    listener = socket.create_server(("127.0.0.1", 0))
    stub = Stub(listener.getsockname()[1], list(codes), size, session_id)

    def serve() -> None:
        connection, _address = listener.accept()
        with connection:
            stub.serve(connection)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield stub
    finally:
        listener.close()
        thread.join(10)


class Stub:
    """Answers one connection, and keeps the session id and epoch of each fetch."""

    def __init__(self, port: int, codes: list[int], size: int, session_id: int) -> None:
        self.port = port
        self.sessions: list[tuple[int, int]] = []
        self._codes, self._size, self._session_id = codes, size, session_id

    def serve(self, connection: socket.socket) -> None:
        """Answer until the follower leaves."""
        while True:
            try:
                fetch = decoded(receive_frame(connection))
                self.sessions.append((fetch.session_id, fetch.session_epoch))
                connection.sendall(self._answer())
            except OSError:
                return

    def _answer(self) -> bytes:
        code = self._codes.pop(0) if self._codes else 0
        message = FetchResponse(error_code=code, session_id=0 if code else self._session_id)
        data = FetchResponse.PartitionData(partition_index=0, high_watermark=1, records=bytes(self._size))
        if not code:
            message.responses = [
                FetchResponse.FetchableTopicResponse(topic_id=TOPIC_IDS[ROW.topic], partitions=[data])
            ]
        rest = (1).to_bytes(4, "big") + b"\0" + codec(FetchResponse, 17).encode(message)
        return len(rest).to_bytes(4, "big") + rest


def load(port: int) -> Load:
    return Load(
        *("127.0.0.1", port, 1, 1, 0.0, 0.1, None),
        generator="bench.replication.follower",
        payload_bytes=ROW.payload_bytes,
    )


def follow(stub: Stub, begin_s: float = 0.0) -> int:
    """Follow for 0.1 s; return the number of measured fetches."""
    content = b"".join(ROW.frames(TOPICS))
    return sum(measure(Order(load(stub.port), 2, begin_s), content).latencies_ns.values())


def test_a_follower_counts_the_epochs_of_its_session() -> None:
    with stub_leader() as stub:
        fetched = follow(stub)
    assert fetched > 2
    assert stub.sessions == [(0, 0)] + [(7, epoch) for epoch in range(1, fetched + 1)]


@pytest.mark.parametrize("code", [NOT_FOUND, INVALID_EPOCH])
def test_a_follower_fails_when_the_leader_forgets_the_session_while_it_is_measured(code: int) -> None:
    with stub_leader(0, 0, code) as stub, pytest.raises(LoadError, match="forgot"):
        follow(stub)
    assert stub.sessions[:4] == [(0, 0), (7, 1), (7, 2), (0, 0)]


@pytest.mark.parametrize("codes", [(NOT_LEADER,), (0, NOT_LEADER), (NOT_FOUND,)])
def test_an_error_code_fails_a_followers_load(codes: tuple[int, ...]) -> None:
    with stub_leader(*codes) as stub, pytest.raises(LoadError, match=f"error code {codes[-1]}"):
        follow(stub)


@pytest.mark.parametrize("size", [0, ROW.payload_bytes - 200, 4 * ROW.payload_bytes])
def test_a_response_of_another_size_fails_a_followers_load(size: int) -> None:
    with stub_leader(size=size) as stub, pytest.raises(LoadError, match="bytes of records"):
        follow(stub)


def test_a_leader_without_sessions_fails_a_followers_load() -> None:
    with stub_leader(session_id=0) as stub, pytest.raises(LoadError, match="no fetch session"):
        follow(stub)


def test_a_follower_in_a_process_of_its_own_is_measured() -> None:
    with stub_leader() as stub:
        measured = generate(load(stub.port), ROW.frames(TOPICS))
    assert measured.requests > 2
    assert measured.cpu_s is None


def test_targets_of_replication_are_other_proxies_a_consumers_fetch_and_two_listeners() -> None:
    found = [target.name for target in targets.targets(TARGETS, [])]
    assert found == [
        *("direct", "haproxy", "kroxylicious", "kafka-proxy"),
        *("weir", "weir-replication", "weir-throttled"),
    ]
    assert targets.targets([TARGETS[1]], []) == [TARGETS[1]]


def test_the_throttles_list_every_replica_at_rates_that_are_never_reached() -> None:
    throttles = parse(targets.throttles()).replication
    assert throttles.topics == set(REPLICATED)
    for role in Role:
        assert throttles.rate(role, leader.LEADER) > 1e14
        assert all(throttles.is_listed(role, topic, 99, 1) for topic in REPLICATED)


@pytest.mark.parametrize("column", toll.COLUMNS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_fetch_in_process_is_charged_its_records_if_replicas_are_throttled(
    row: FollowerRow, column: str
) -> None:
    connection = toll.COLUMNS[column]()
    fetching = toll.Fetching(row, connection)
    for _number in range(2):
        fetching.fetch()
    fetcher = connection.replica_fetcher
    charged = {} if fetcher is None else fetcher._replication.quotas.budgets
    size = sum(len(data.records or b"") for data in answer(row.frames(TOPICS)[1]).responses[0].partitions)
    listed = {(Role.LEADER, leader.LEADER), (Role.FOLLOWER, fetches.FOLLOWER)}
    assert set(charged) == (listed if column == "all replicas throttled" else set())
    assert all(budget.charged == 3 * size for budget in charged.values())


def measured(cpu_us: float) -> Measured:
    """A thousand fetches within a second."""
    return Measured(1000, 1.0, 250.0, 1500.0, cpu_us / 1000, 50_000_000, 0.5)


def test_replication_has_a_section_of_its_own_with_ratios_to_a_consumers_fetch() -> None:
    results = Results([ROW], targets.targets(TARGETS, []))
    costs = {"haproxy": 10, "kroxylicious": 40, "weir": 20, "weir-replication": 20, "weir-throttled": 30}
    results.cells.update({(ROW.name, name): [measured(cost)] for name, cost in costs.items()})
    outcome = report.Outcome(Results([], []), Results([], []), replication=results, load_average=0.1)
    assert report.tables(outcome, document.FIGURES) == []
    text = render.markdown(report.tables(outcome, report.REPLICATION), [])
    assert text.startswith("CPU µs per fetch of the proxy process")
    assert "request" not in text.lower()
    assert "Weir, all replicas throttled ÷ Weir, as a consumer's fetch" in text
    cells = ("2.00", "0.50", "1.00", "3.00", "0.75", "1.50")
    assert f"| {ROW.title} | {' | '.join(f'{x} ({x} to {x})' for x in cells)} |" in text
    assert "| 1,000, 10 MB/s | 4,000, 10 MB/s |" in text


@pytest.mark.broker
def test_a_broker_serves_a_follower_that_does_not_run_and_keeps_it_out_of_sync() -> None:
    with broker.cluster() as cluster:
        ((port,), (controller_port,)) = cluster.ports.values(), cluster.controller_ports.values()
        ids = leader.prepare(port, controller_port, ROWS[1:])
        for row in ROWS[1:]:
            for _fetch in range(2):
                message = broker.ask(port, fetches.full(ids[row.topic], row.partitions))
                assert isinstance(message, FetchResponse)
                sizes = [len(data.records or b"") for data in message.responses[0].partitions]
                assert sum(map(bool, sizes)) == row.with_records
                assert row.payload_bytes < sum(sizes) < row.payload_bytes + 100 * row.with_records
        names = [row.topic for row in ROWS[1:]]
        found = broker.ask(port, request(METADATA_VERSION, bodies.metadata(names)))
        assert isinstance(found, MetadataResponse)
        partitions = [partition for topic in found.topics for partition in topic.partitions]
        assert len(partitions) == 200
        assert {tuple(partition.replica_nodes) for partition in partitions} == {(0, 1)}
        assert {tuple(partition.isr_nodes) for partition in partitions} == {(0,)}
