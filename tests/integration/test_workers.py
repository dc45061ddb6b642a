"""Several workers in front of several brokers: quotas hold as with one process, and a lost worker is replaced
without a lost message. `-s` shows the longest pauses.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.clients import create_topic
from tests.integration.conftest import StartWeir
from tests.integration.traffic import (
    ONCE,
    PySender,
    RdReceiver,
    RdSender,
    Sender,
    assert_all_arrived,
    flow,
    settle,
)
from tests.integration.weir import Weir
from tests.integration.weir_log import GENEROUS, entries
from tests.kafka.fixtures import StartCluster
from tests.raw import NEW, Behaviour, RawClient, drive, leaders, produce, set_quotas

pytestmark = [pytest.mark.broker, pytest.mark.alone]

TWO = ("--set", "workers=2")
BROKERS = 3
WAIT_S = 60.0


def kill_worker(weir: Weir, _flows: Callable[[], None]) -> None:
    os.kill(workers(weir)[0], signal.SIGKILL)
    await_lost(weir, "died")


def stop_worker(weir: Weir, _flows: Callable[[], None]) -> None:
    os.kill(workers(weir)[0], signal.SIGSTOP)
    await_lost(weir, "stuck")


def kill_supervisor(weir: Weir, _flows: Callable[[], None]) -> None:
    former = workers(weir)
    os.kill(weir.pid, signal.SIGKILL)
    await_true(lambda: not any(map(runs, former)))
    assert weir.stop() == -signal.SIGKILL
    weir.start()


def stop_supervisor(weir: Weir, flows: Callable[[], None]) -> None:
    os.kill(weir.pid, signal.SIGSTOP)
    flows()
    os.kill(weir.pid, signal.SIGCONT)


def restart(weir: Weir, _flows: Callable[[], None]) -> None:
    assert weir.stop() == 0
    weir.start()


@pytest.mark.parametrize("fault", [kill_worker, stop_worker, kill_supervisor, stop_supervisor, restart])
def test_clients_lose_nothing(
    kafka_cluster: StartCluster,
    start_weir: StartWeir,
    topic: str,
    fault: Callable[[Weir, Callable[[], None]], None],
) -> None:
    cluster = kafka_cluster("3.9.1", brokers=BROKERS)
    weir = start_weir(cluster.bootstrap, GENEROUS, options=TWO)
    create_topic(weir.bootstrap, topic, BROKERS)
    place = weir.bootstrap, topic, BROKERS
    # kafka-python leaves the sockets of refused connections open.
    other = RdSender(*place, ONCE, "another") if fault in {kill_supervisor, restart} else PySender(*place)
    senders: list[Sender] = [RdSender(*place, ONCE), other]
    receiver = RdReceiver(*place)
    with ExitStack() as stack:
        for talker in (*senders, receiver):
            stack.enter_context(talker)
        flow(senders, [receiver])
        for sender in senders:
            sender.pauses_s = [0.0] * BROKERS
        fault(weir, lambda: flow(senders, [receiver]))
        flow(senders, [receiver])
        for sender in senders:
            print(f"{fault.__name__}: {sender.name} waited for a partition for {max(sender.pauses_s):.2f} s")
        settle(senders, [receiver])
    assert_all_arrived(senders, [receiver], once=True)
    assert weir.stop() == 0


def test_quotas_altered_through_a_worker_are_stored_by_the_supervisor_and_hold_at_all_workers(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster = kafka_cluster("3.9.1", brokers=BROKERS)
    weir = start_weir(cluster.bootstrap, options=(*TWO, "--quota-admins", "User:ANONYMOUS"))
    create_topic(cluster.bootstrap, topic, 2)
    at = leaders(("127.0.0.1", weir.port), topic)
    set_quotas(at[0], {"slow": {"producer_byte_rate": 1000}})
    assert 'client_id = "slow"' in weir.quota_file.read_text("utf-8")
    clients = [RawClient("slow", at[n], produce(NEW, "slow", topic, 50_000, n), Behaviour()) for n in (0, 1)]
    drive(clients, 5.0)
    assert [len(one.answers) for one in clients] == [1, 1]
    assert all(one.answers[0].throttle_ms > 10_000 for one in clients)


def workers(weir: Weir) -> list[int]:
    return [int(str(line["pid"])) for line in entries(weir.log) if line["event"] == "worker started"]


def await_lost(weir: Weir, reason: str) -> None:
    """Wait until a worker was lost for this reason, and another one has started."""
    await_true(lambda: len(workers(weir)) == 3)  # two, and the new one
    lost = [line["reason"] for line in entries(weir.log) if line["event"] == "worker lost, starting another"]
    assert lost == [reason]


def await_true(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)  # between two looks; nothing is decided by it


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(") ")[2][0] not in "ZX"
    except FileNotFoundError:
        return False
