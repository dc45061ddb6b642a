"""Peers that talk nonsense, too slowly, not to the end, or do not listen."""

from __future__ import annotations

import random
import socket

import pytest

from tests.hostile.conftest import Brokers
from tests.hostile.stage import PING, PONG, Neighbour, Stage, at_end, receive
from tests.integration.conftest import StartWeir
from tests.kafka.settings import HOST
from tests.kfake.process import DEAF
from tests.proxy.rigs import reset
from tests.wire.frames import request
from weir.protocol.messages import FetchRequest, ProduceRequest
from weir.proxy.net.splicing import PIPE_BYTES

FETCH = request(FetchRequest(), 11)
MB = 1_000_000


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
