"""Take-overs while a worker is killed, at the former Weir or at the new one: clients are served on."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from contextlib import suppress
from typing import Final, NamedTuple

import pytest

from tests.integration.admin_port import HOST
from tests.integration.takeovers import PATIENCE_S, Generations, RdkafkaLoad, Running
from tests.wire.frames import request
from weir.protocol.messages import ApiVersionsRequest

pytestmark = [pytest.mark.slow]


class Kill(NamedTuple):
    log: int
    """Number of the Weir that logs the event: 1 for the former one, 2 for the new one."""
    event: str
    victim: int
    """Number of the Weir whose worker is killed."""


KILLS: Final = {
    "former, as the new one begins": Kill(2, "taking over", 1),
    "former, as it hears of the new one": Kill(1, "a new Weir is starting, which takes over", 1),
    "former, as it drains": Kill(1, "listeners handed over, stopping", 1),
    "new, as it starts": Kill(2, "worker started", 2),
    "new, as it has the listeners": Kill(2, "listeners taken over", 2),
}


def events(weirs: Generations, number: int, event: str) -> list[dict[str, object]]:
    whole, _end, _partial = weirs.log(number).rpartition("\n")
    return [line for line in map(json.loads, whole.splitlines()) if line["event"] == event]


def kill_a_worker(weirs: Generations, number: int) -> int:
    """Kill the worker of this Weir that has started last; return its process id."""
    pid = events(weirs, number, "worker started")[-1]["pid"]
    assert isinstance(pid, int)
    with suppress(ProcessLookupError):  # it has drained
        os.kill(pid, signal.SIGKILL)
    return pid


def answers(port: int) -> bool:
    """Return True if a request at this port of Weir is answered. A killed worker resets its connections: then
    connect again.
    """
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with suppress(ConnectionError), socket.create_connection((HOST, port), timeout=PATIENCE_S) as client:
            client.sendall(request(ApiVersionsRequest(), 0))
            if client.recv(4):
                return True
        time.sleep(0.1)  # between attempts; nothing is decided by it
    return False


def assert_served(weirs: Generations, running: Running) -> None:
    """Each listener is served by workers that run, and the load gets its acknowledgements."""
    assert all(answers(weirs.port + offset) for offset in (0, 2, 3, 4))  # bootstrap, node ids 1 to 3
    running.wait_for_more(100)


@pytest.mark.parametrize("kill", KILLS.values(), ids=KILLS)
def test_clients_are_served_on_if_a_worker_is_killed_during_a_takeover(upstream: str, kill: Kill) -> None:
    with Generations(upstream, options=("--set", "workers=2", "--set", "drain_timeout_s=5")) as weirs:
        load = RdkafkaLoad(weirs.bootstrap, "t")
        with Running(load) as running:
            running.wait_for_more()
            new = weirs.start_only()
            weirs.wait_for(kill.log, f'"event": "{kill.event}"')
            kill_a_worker(weirs, kill.victim)
            weirs.wait_for(new, '"event": "listeners taken over"')
            assert weirs.ended(1) == 0
            assert_served(weirs, running)
            assert weirs.start() == 3
            assert weirs.ended(new) == 0
            assert_served(weirs, running)
        assert load.tally.failures == []


def test_clients_are_served_on_if_a_worker_is_killed_just_before_a_takeover(upstream: str) -> None:
    """Its successor may not be ready yet when the listeners are handed over."""
    with Generations(upstream, options=("--set", "workers=2", "--set", "drain_timeout_s=5")) as weirs:
        load = RdkafkaLoad(weirs.bootstrap, "t")
        with Running(load) as running:
            running.wait_for_more()
            kill_a_worker(weirs, 1)
            new = weirs.start()
            assert weirs.ended(1) == 0
            assert len(events(weirs, 1, "worker lost, starting another")) == 1
            assert_served(weirs, running)
            assert weirs.number == new
        assert load.tally.failures == []
