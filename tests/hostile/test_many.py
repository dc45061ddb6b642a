"""Many connections at once: ten thousand that do nothing, a thousand that come together."""

from __future__ import annotations

import selectors
import socket

import pytest

from tests.hostile.files import raise_descriptor_limit
from tests.hostile.stage import PATIENCE_S, PING, PONG, Neighbour, Stage, ask
from tests.integration.descriptors import open_count
from tests.kafka.settings import HOST

IDLE, BURST = 10_000, 1_000
RESERVE = 200
"""Descriptors for everything else."""
BYTES_PER_IDLE = 8_000
"""Room for the Python objects of a connection and its two sides, which take 3 to 4 KB; a receive buffer of
its own would take thirty times as much.
"""


@pytest.mark.slow
def test_weir_serves_clients_beside_ten_thousand_idle_connections(stage: Stage) -> None:
    limit = raise_descriptor_limit()
    count = min(IDLE, (limit - RESERVE) // 2)  # two descriptors each in Weir
    scaled = f"{count} of {IDLE} connections, for there may be only {limit} descriptors"
    clients = []
    try:
        with Neighbour(stage) as neighbour:
            clients = [stage.connect() for _ in range(count)]
            stage.until(
                lambda: open_count(stage.weir.pid) >= stage.descriptors + 2 * count,
                f"all have reached a broker ({scaled})",
            )
            per_connection = stage.grown_bytes() / count
            assert per_connection < BYTES_PER_IDLE, f"{per_connection:.0f} bytes each ({scaled})"
            neighbour.more(100)
            assert all(ask(sock, PING) == PONG for sock in clients[:: count // 50]), "they can be used"
    finally:
        for sock in clients:
            sock.close()
    stage.all_closed({"client_closed": count + 1})


@pytest.mark.slow
def test_weir_accepts_a_burst_of_a_thousand_connections(stage: Stage) -> None:
    """All are connected to at once, ask at once, and are answered."""
    with Neighbour(stage), selectors.DefaultSelector() as selector:
        clients = [socket.socket() for _ in range(BURST)]
        for sock in clients:
            sock.setblocking(False)
            sock.connect_ex((HOST, stage.weir.port + 1))
            selector.register(sock, selectors.EVENT_WRITE)
        waiting = BURST
        while waiting:
            ready = selector.select(PATIENCE_S)
            assert ready, f"{waiting} of {BURST} connections are not accepted"
            for key, _ in ready:
                selector.unregister(key.fileobj)
                connected = key.fileobj
                assert isinstance(connected, socket.socket)
                connected.settimeout(PATIENCE_S)
                stage.count(connected)
                connected.sendall(PING)
                waiting -= 1
        for sock in clients:
            assert sock.recv(len(PONG), socket.MSG_WAITALL) == PONG
            sock.close()
    stage.all_closed({"client_closed": BURST + 1})
