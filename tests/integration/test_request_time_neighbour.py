"""A client that asks for heavy metadata again and again starves its neighbours, until its quota is set."""

from __future__ import annotations

import threading
import time
from typing import Final

import pytest

from tests.clients import create_topic
from tests.integration.calibrated import SETTINGS, WINDOW_NUM
from tests.integration.conftest import StartWeir
from tests.kafka.fixtures import StartCluster
from tests.raw import Address, Behaviour, RawClient, drive, leaders, loops
from tests.wire.connection import Connection

pytestmark = [pytest.mark.broker, pytest.mark.alone]

ONE_THREAD: Final = {"num.io.threads": "1"}
NAMES: Final = [f"no-{number}" for number in range(3000)]
"""Topics that there are not: looking for them takes as long."""
CONNECTIONS: Final = 16
PERCENT: Final = 1
WARM_S, EACH_S = 1.0, 4.0
GREEDY_S: Final = 2 * EACH_S + 5.0
"""Longer than it is needed, whenever the quota is in force."""
IN_FORCE_S: Final = 10.0
QUOTA: Final = f'[[quota]]\nclient_id = "greedy"\nrequest_percentage = {PERCENT}\n'
WORSE: Final = 2.0
"""What is wanted of the starving, and of the recovery."""


class Neighbour:
    """A producer and consumer that does one thing after the other, on one connection."""

    def __init__(self, address: Address, topic: str) -> None:
        self._requests = [loops.produce("neighbour", topic, 1), loops.fetch("neighbour", topic, 1)]
        self._connection = Connection(address)

    def p99_ms(self, seconds: float) -> float:
        """Of the answers that come within this time, from request to answer."""
        began, took_s = time.monotonic(), list[float]()
        while time.monotonic() < began + seconds:
            for request in self._requests:
                sent_s = time.monotonic()
                told = request.outcome(self._connection.exchange(request.frame))
                took_s.append(time.monotonic() - sent_s)
                assert told.throttle_ms == 0
        return 1000 * sorted(took_s)[int(0.99 * len(took_s))]

    def close(self) -> None:
        self._connection.close()


def test_a_starved_client_recovers_when_the_greedy_one_gets_a_quota(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster = kafka_cluster("3.9.1", settings=SETTINGS | ONE_THREAD, optimized=True)
    weir = start_weir(cluster.bootstrap, options=("--quota-window-num", str(WINDOW_NUM)))
    create_topic(cluster.bootstrap, topic)
    address = leaders(("127.0.0.1", weir.port), topic)[0]
    demand = Behaviour(connections=CONNECTIONS)
    greedy = RawClient("greedy", address, loops.metadata("greedy", NAMES), demand)
    drive([RawClient("warm", address, loops.metadata("warm", NAMES), Behaviour())], WARM_S)
    neighbour = Neighbour(address, topic)
    running = threading.Thread(target=drive, args=([greedy], GREEDY_S))
    neighbour.p99_ms(WARM_S)
    before_ms = neighbour.p99_ms(EACH_S)
    running.start()
    try:
        neighbour.p99_ms(0.5)
        during_ms = neighbour.p99_ms(EACH_S)
        weir.quota_file.write_text(QUOTA, "utf-8")
        deadline = time.monotonic() + IN_FORCE_S
        while not any(answer.throttle_ms > 0 for answer in greedy.answers[-CONNECTIONS:]):
            assert time.monotonic() < deadline, "the quota is not in force"
            neighbour.p99_ms(0.1)
        after_ms = neighbour.p99_ms(EACH_S)
        assert running.is_alive(), "the greedy client was there to the end"
    finally:
        running.join()
        neighbour.close()
    print(f"p99 in ms: before {before_ms:.1f}, during {during_ms:.1f}, after {after_ms:.1f}")
    assert during_ms >= WORSE * before_ms
    assert after_ms <= during_ms / WORSE
