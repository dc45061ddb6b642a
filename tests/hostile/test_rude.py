"""Peers that talk nonsense, too slowly, not to the end, or do not listen."""

from __future__ import annotations

import random
import socket
from collections import Counter

import pytest

from tests.hostile.conftest import Brokers
from tests.hostile.stage import PING, PONG, Neighbour, Stage, at_end, receive
from tests.integration.conftest import StartWeir
from tests.kafka.settings import HOST
from tests.kfake.process import CUTTING, DEAF
from tests.proxy.rigs import reset
from tests.wire.frames import request
from weir.protocol.messages import FetchRequest, HeartbeatRequest, MetadataRequest, ProduceRequest
from weir.proxy.net.splicing import PIPE_BYTES

FETCH = request(FetchRequest(), 11)
MB = 1_000_000
GARBAGE = {
    "http": (b"GET / HTTP/1.1\r\nHost: weir\r\n\r\n", "request_too_large"),
    "ssh": (b"SSH-2.0-OpenSSH_9.6\r\n", "request_too_large"),
    "tls": (bytes.fromhex("16030102000100 01fc0303") + bytes(40), "tls_on_plain_port"),
    "zeros": (bytes(64), "request_too_short"),
    "ones": (b"\xff" * 64, "request_too_short"),
    "a length just below a head": ((7).to_bytes(4) + bytes(60), "request_too_short"),
    "a length above the limit": ((100 * 1024 * 1024 + 1).to_bytes(4) + bytes(60), "request_too_large"),
    "a client-id longer than its request": (
        request(ProduceRequest(acks=1), 7)[:12] + b"\x7f\xff" + bytes(60),
        "request_malformed",
    ),
    "a version not offered": (
        request(ProduceRequest(acks=1), 7).replace(b"\0\0\0\x07", b"\0\0\x7f\xff", 1),
        "request_version_unknown",
    ),
}


def test_garbage_from_a_client_ends_only_its_own_connection(used_stage: Stage) -> None:
    times = 20
    with Neighbour(used_stage):
        for sent, _reason in GARBAGE.values():
            for _ in range(times):
                with used_stage.connect() as sock:
                    sock.sendall(sent)
                    assert at_end(sock)
    reasons = Counter(reason for _sent, reason in GARBAGE.values())
    used_stage.all_closed({"client_closed": 1} | {each: times * reasons[each] for each in reasons})


def test_random_bytes_of_clients_end_their_connections_with_a_peers_close_reason(used_stage: Stage) -> None:
    """Whatever they happen to mean, each connection ends for a reason that is not ours."""
    chance, times = random.Random(4), 300
    with Neighbour(used_stage):
        for _ in range(times):
            with used_stage.connect() as sock:
                length = chance.choice((b"", b"\0\0\0", b"\0\0"))
                sock.sendall(length + chance.randbytes(chance.randrange(1, 400)))
                sock.shutdown(socket.SHUT_WR)
    used_stage.until(lambda: used_stage.ended().total() == times + 1, "all have ended")
    ended = used_stage.ended()
    assert "internal_error" not in ended
    assert {reason.split("_")[0] for reason in ended} <= {"client", "request", "broker", "response", "tls"}
    used_stage.all_closed(dict(ended))


def test_requests_sent_one_byte_at_a_time_are_answered(used_stage: Stage) -> None:
    conversation = PING + request(MetadataRequest(topics=None), 9) + request(ProduceRequest(acks=1), 7) + PING
    with Neighbour(used_stage):
        clients = [used_stage.connect() for _ in range(20)]
        for sock in clients:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for position in range(len(conversation)):
            for sock in clients:
                sock.send(conversation[position : position + 1])
        for sock in clients:
            assert [receive(sock), len(receive(sock)) > 4, len(receive(sock)) > 4, receive(sock)] == [
                PONG,
                True,
                True,
                PONG,
            ]
            sock.close()
    used_stage.all_closed({"client_closed": 21})


def test_clients_may_close_at_every_byte_of_a_conversation(used_stage: Stage) -> None:
    """The client half-closes, or resets: nothing is left of it. What was asked in full is answered."""
    asked = [
        PING,
        request(MetadataRequest(topics=[]), 9),
        request(ProduceRequest(acks=1), 7),
        FETCH,
        request(HeartbeatRequest(group_id="g"), 4),
    ]
    conversation = b"".join(asked)
    with Neighbour(used_stage):
        for end in range(len(conversation) + 1):
            with used_stage.connect() as sock:
                sock.sendall(conversation[:end])
                sock.shutdown(socket.SHUT_WR)
                if end >= len(PING):
                    assert receive(sock) == PONG, f"cut after {end} bytes"
                assert at_end(sock)
            sock = used_stage.connect()
            sock.sendall(conversation[:end])
            reset(sock)
    count = 2 * (len(conversation) + 1)
    used_stage.until(lambda: used_stage.ended().total() == count + 1, "all have ended")
    ended = used_stage.ended()
    assert set(ended) <= {"client_closed", "client_reset"}
    assert ended["client_closed"] >= count // 2
    used_stage.all_closed(dict(ended))


def test_a_broker_may_close_at_every_byte_of_its_response(used_stage: Stage) -> None:
    """The client gets as much as came, and the end."""
    with Neighbour(used_stage):
        for end in range(len(PONG)):
            with used_stage.connect(CUTTING) as sock:
                sock.sendall(PING)
                got = b""
                while more := sock.recv(100):
                    got += more
                assert PONG.startswith(got)
                assert len(got) == (end if end >= 8 else 0), "a head is passed on when it is whole"
    used_stage.all_closed({"broker_closed": len(PONG), "client_closed": 1})


@pytest.mark.slow
def test_clients_that_never_read_cost_weir_one_batch_each(stage: Stage) -> None:
    """What waits for them waits at the broker: one batch each is kept."""
    count, fetches = 20, 500
    clients = []
    with Neighbour(stage) as neighbour:
        for _ in range(count):
            sock = stage.connect()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.sendall(FETCH * fetches)
            clients.append(sock)
        for _ in range(20):
            neighbour.more(50)
            assert stage.grown_bytes() < 20 * MB, f"of {count * fetches} MB asked for"
        for sock in clients[::2]:
            sock.close()
        for sock in clients[1::2]:
            reset(sock)
    stage.until(lambda: stage.ended().total() == count + 1, "all have ended")
    assert set(stage.ended()) <= {"client_closed", "client_reset"}
    stage.all_closed(dict(stage.ended()))


@pytest.mark.slow
def test_clients_of_a_broker_that_never_reads_cost_weir_one_batch_each(stage: Stage) -> None:
    """What its clients send waits in their own sockets: Weir keeps one batch each, at most a full pipe."""
    count = 5
    batches_bytes = count * PIPE_BYTES + 2 * MB  # the rest is what any first load of this Weir takes
    head = (90 * MB).to_bytes(4) + request(ProduceRequest(acks=1), 7)[4:]
    clients = []
    with Neighbour(stage) as neighbour:
        for _ in range(count):
            sock = stage.connect(DEAF)
            sock.sendall(head)
            sock.setblocking(False)
            clients.append(sock)
        sent, more = 0, 1
        while more:
            more = sum(send_all_that_goes(sock) for sock in clients)
            sent += more
            neighbour.more(50)
            assert stage.grown_bytes() < batches_bytes, f"after {sent} bytes were sent"
        assert sent < count * 80 * MB, "they had to stop in the middle of their requests"
        for sock in clients:
            reset(sock)
    stage.all_closed({"client_reset": count, "client_closed": 1})


def send_all_that_goes(sock: socket.socket) -> int:
    """Send until the socket is full; return how many bytes went."""
    sent = 0
    try:
        while sent < 80 * MB:
            sent += sock.send(bytes(100_000))
    except BlockingIOError:
        pass
    return sent


def test_clients_that_reset_their_connections_are_counted(used_stage: Stage) -> None:
    with Neighbour(used_stage):
        for _ in range(100):
            sock = used_stage.connect()
            sock.sendall(PING)
            assert receive(sock) == PONG
            reset(sock)
    used_stage.all_closed({"client_reset": 100, "client_closed": 1})


def test_killed_brokers_end_their_clients_and_the_kernel_refuses_new_ones(
    brokers_to_kill: Brokers, start_weir: StartWeir
) -> None:
    stage = Stage(start_weir(f"{HOST}:{brokers_to_kill.port}"))
    clients = [stage.connect() for _ in range(100)]
    for sock in clients:
        sock.sendall(PING)
        assert receive(sock) == PONG
    brokers_to_kill.kill()
    for sock in clients:
        assert at_end(sock)
        sock.close()
    stage.until(lambda: stage.ended().total() == 100, "all have ended")
    assert set(stage.ended()) <= {"broker_closed", "broker_reset"}
    before = stage.ended()
    with stage.connect() as sock:
        assert at_end(sock)
    for _ in range(50):
        with pytest.raises(ConnectionRefusedError):
            stage.connect()
    stage.all_closed({**before, "broker_unreachable": 1})
    lines = [line for line in stage.weir.log.splitlines() if "broker_unreachable" in line]
    assert len(lines) <= 3, "one at once, then one a second"
