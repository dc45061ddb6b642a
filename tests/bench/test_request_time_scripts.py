"""Every workload can be said in the versions of every broker, and the loop counts what it does: no broker."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence

import pytest

from bench.request_time import micro, scripts
from bench.request_time.book import Book
from bench.request_time.calls import BrokerVersions, Call, Script, again
from bench.request_time.comparing import greeted
from bench.request_time.features import Tally
from bench.request_time.loop import Loop, LoopError
from bench.request_time.topics import Batch, Data, plain
from bench.request_time.workloads import QUICK, WORKLOADS
from weir.protocol import ApiKey, Message, codec, response_header_version, versions
from weir.protocol.framing import LENGTH
from weir.protocol.messages import FetchResponse, ResponseHeader
from weir.quotas.costs.cost_fitting import UNPACKED
from weir.quotas.costs.request_costs import ColdCost

COLD = ColdCost(us=50.0, from_us=300.0, full_us=1500.0)
OF_1_1 = (
    *((0, 5), (0, 7), (0, 2), (0, 5), (0, 0), (0, 0), (0, 4), (0, 1), (0, 3), (0, 3), (0, 1), (0, 2), (0, 1)),
    *((0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 1), (0, 2), (0, 1), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)),
    *((0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 1), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)),
)
"""What Kafka 1.1 answers to ApiVersions, by API key."""


def newest() -> dict[int, tuple[int, int]]:
    return {key: (known.min, known.max) for key in ApiKey if (known := versions(key)) is not None}


BROKER_VERSIONS = {"1.1": BrokerVersions(dict(enumerate(OF_1_1))), "newest": BrokerVersions(newest())}


@pytest.fixture(scope="module")
def data() -> Data:
    batch = plain([b"x" * 100])
    packed = {
        (codec, text): Batch(b"x", 900.0, codec) for codec in ("gzip", "zstd") for text in ("zeros", "words")
    }
    return Data(batch, batch, batch, batch, packed)


def first_calls(scripts: Sequence[Script]) -> list[Call]:
    calls = [next(script) for script in scripts]
    for script in scripts:
        script.close()
    return calls


@pytest.mark.parametrize("name", BROKER_VERSIONS)
def test_every_workload_can_be_encoded_in_each_brokers_versions(name: str, data: Data) -> None:
    book = Book(BROKER_VERSIONS[name])
    for workload in WORKLOADS:
        if workload.needs(book, data):
            assert first_calls(workload.make(book, data, "client"))


@pytest.mark.parametrize("name", BROKER_VERSIONS)
def test_every_microworkload_can_be_encoded_in_each_brokers_versions(name: str, data: Data) -> None:
    book = Book(BROKER_VERSIONS[name])
    names = [case.name for case in micro.cases(book, data) if first_calls(case.scripts())]
    assert len(names) == len(set(names))


def test_workload_clients_send_apiversions_first(data: Data) -> None:
    by_name = {workload.name: workload for workload in WORKLOADS}
    (script,) = greeted(by_name["metadata"], Book(BROKER_VERSIONS["1.1"]), data, "me")
    assert next(script).api == ApiKey.API_VERSIONS
    assert script.send(b"").api == ApiKey.METADATA
    script.close()


def test_the_quick_workloads_exist() -> None:
    assert set(QUICK) <= {workload.name for workload in WORKLOADS}


def test_each_workload_client_has_a_client_id_per_api() -> None:
    call = Book(BROKER_VERSIONS["1.1"]).list_groups("me")
    assert call.client_id == "me.ListGroups"
    assert b"\x00\x0dme.ListGroups" in call.frame


def test_an_incremental_fetch_counts_the_bytes_of_omitted_partitions() -> None:
    book = Book(BROKER_VERSIONS["newest"])
    script = scripts.fetch_session(book, "me", 500, rest="aside")
    begun = next(script)
    more = script.send(answered(FetchResponse(session_id=7), begun))
    script.close()
    assert "us_per_session_kb" not in begun.known
    listed_kb = (len(begun.frame) - 4) / 1000 - (len(begun.client_id) - len(more.client_id)) / 1000
    sent_kb = (len(more.frame) - 4) / 1000
    assert more.known["us_per_request_kb"] == sent_kb
    assert more.known["us_per_session_kb"] == pytest.approx(listed_kb - sent_kb, abs=0.01)


def answered(body: Message, call: Call) -> bytes:
    """The frame of a response."""
    head = ResponseHeader(correlation_id=1)
    content = codec(ResponseHeader, response_header_version(call.api, call.version)).encode(head)
    content += codec(type(body), call.version).encode(body)
    return LENGTH.pack(len(content)) + content


def test_compressed_records_count_unpacked_in_each_partition(data: Data) -> None:
    call = Book(BROKER_VERSIONS["newest"]).produce(
        "me", data.compressed["gzip", "zeros"], topic="t", indexes=range(3), acks=-1
    )
    assert call.known[UNPACKED["gzip"]] == 2700.0
    assert (call.known["us_per_partition"], call.known["us_acks_all"]) == (2.0, 1.0)


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """Answers each of a connection's frames with its own bytes, and closes when it is sent `bye`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_serve, args=(listener,), daemon=True).start()
        yield listener.getsockname()


def _serve(listener: socket.socket) -> None:
    try:
        connection, _ = listener.accept()
    except OSError:
        return
    with connection, connection.makefile("rb") as stream:
        while head := stream.read(4):
            body = stream.read(LENGTH.unpack(head)[0])
            if body == b"bye":
                return
            connection.sendall(head + body)


def framed(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


def test_a_load_loop_counts_bytes_and_conversions_of_its_requests(echo: tuple[str, int]) -> None:
    large = Call(ApiKey.FETCH, 0, framed(bytes(3_000_000)), "large", {"us": 1.0})
    small = Call(ApiKey.FETCH, 0, framed(bytes(500)), "small", {"us": 1.0}, converted=True)
    tally = Tally(COLD)
    loop = Loop(echo, [again(large, small)], tally)
    try:
        loop.run(0.2)
    finally:
        loop.close()
    for name, kb in (("large", 3000.0), ("small", 0.5)):
        done = tally.done[name]
        assert done["us"] > 0
        assert done["us_per_response_kb"] == pytest.approx(done["us"] * kb)
    assert tally.done["small"]["us_per_converted_kb"] == tally.done["small"]["us_per_response_kb"]
    assert tally.done["large"]["us"] - tally.done["small"]["us"] in {0, 1}


def test_a_load_loop_fails_if_the_broker_closes_a_connection(echo: tuple[str, int]) -> None:
    bye = Call(ApiKey.FETCH, 0, framed(b"bye"), "me", {"us": 1.0})
    loop = Loop(echo, [again(bye)], Tally(COLD))
    try:
        with pytest.raises(LoopError, match="closed a connection of me"):
            loop.run(5.0)
    finally:
        loop.close()
