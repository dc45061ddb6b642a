"""Several Weirs in front of one real cluster keep one quota together, also while Weirs or the topic fail."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Final

import pytest

from tests.clients import create_topic
from tests.integration.admin_port import Admin
from tests.integration.conftest import StartWeir
from tests.integration.stalling import StallingRelay
from tests.integration.traffic import (
    ONCE,
    RdReceiver,
    RdSender,
    assert_all_arrived,
    flow,
    settle,
)
from tests.integration.weir import START_S, Weir
from tests.kafka.cluster import Cluster
from tests.kafka.fixtures import StartCluster
from tests.kafka.ports import free_range
from tests.raw import NEW, Behaviour, Pace, RawClient, drive, leaders, produce
from tests.raw.rates import SWING_S, mean_rate, swing_rate, trend_rate

pytestmark = [pytest.mark.broker, pytest.mark.measured]

QUOTA: Final = 1_000_000
"""bytes/s"""
SHARED: Final = f"""
[[quota]]
client_id = "<default>"
producer_byte_rate = {QUOTA}
scope = "cluster"
"""
OF_GROUP: Final = f"""
[[group]]
name = "members"
client_ids = ["mem*"]
[[quota]]
group = "members"
producer_byte_rate = {QUOTA}
scope = "cluster"
"""
PER_BROKER: Final = SHARED.replace('scope = "cluster"', "")
USAGE_TOPIC: Final = "__weir_usage"
OPTIONS: Final = ("--set", f"usage_share_topic={USAGE_TOPIC}")
LONG_WINDOW: Final = (*OPTIONS, "--set", "quota_window_num=31")
"""Options with a window of 30 s: a restart may take ten seconds on a busy machine."""
STARTED: Final = '"event": "started"'
SETTLED_S: Final = 15
"""Time (s) after which the first window, which a client may use up at once, is over."""
EVENLY_UNTIL_S: Final = 11
"""The default window has eleven samples of one second."""
MINUTE_S: Final = 60
CUT_S: Final = 30
SIZE: Final = 20_000
TOLERANCE: Final = 0.05
RESTARTS: Final = int(os.environ.get("RESTARTS", "5"))


def weirs_of(
    start_weir: StartWeir,
    upstreams: Sequence[str],
    quotas: str = SHARED,
    options: tuple[str, ...] = OPTIONS,
) -> list[Weir]:
    """Return one Weir for each upstream, once each has heard all."""
    admins = [Admin() for _ in upstreams]
    found = [
        start_weir(at, quotas, options=(*options, *admin.options))
        for at, admin in zip(upstreams, admins, strict=True)
    ]
    for admin in admins:
        wait_until_heard(admin, len(upstreams))
    return found


def wait_until_heard(admin: Admin, weirs: int) -> None:
    """Return once this Weir hears so many, itself included. Before that, it uses a part of each limit."""
    deadline = time.monotonic() + START_S
    while admin.metrics().value("weir_share_weirs") < weirs:
        assert time.monotonic() < deadline, "reports do not come through the topic"
        time.sleep(0.1)  # between questions; nothing is decided by it


def clients_of(
    weirs: Sequence[Weir], topic: str, connections: int, client_id: str = "app"
) -> list[RawClient]:
    behaviour, request = Behaviour(connections=connections), produce(NEW, client_id, topic, SIZE)
    return [
        RawClient(client_id, leaders(("127.0.0.1", weir.port), topic)[0], request, behaviour)
        for weir in weirs
    ]


def steady_rate(clients: Sequence[RawClient], from_s: float) -> float:
    """The rate of all clients together over `MINUTE_S`, as a share of the quota."""
    until_s = from_s + MINUTE_S + SWING_S / 2
    return sum(swing_rate(client.answers, from_s, until_s) for client in clients) / QUOTA


def rate(clients: Sequence[RawClient], from_s: float, until_s: float) -> float:
    return sum(mean_rate(client.answers, from_s, until_s) for client in clients) / QUOTA


def test_three_weirs_keep_one_quota_over_a_minute(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    """One Weir at the same time shows what the machine allows."""
    cluster = fresh_cluster("3.9.1")
    create_topic(cluster.bootstrap, topic)
    clients = clients_of(weirs_of(start_weir, [cluster.bootstrap] * 3), topic, 2)
    alone = clients_of([start_weir(cluster.bootstrap, SHARED)], topic, 6)
    drive([*clients, *alone], SETTLED_S + MINUTE_S + SWING_S / 2)
    found, single = steady_rate(clients, SETTLED_S), steady_rate(alone, SETTLED_S)
    print(f"3 Weirs, 2 connections each: {found:.3f} of the quota; one Weir: {single:.3f}")
    assert (1 - TOLERANCE) * min(single, 1) <= found <= 1 + TOLERANCE


def test_two_weirs_with_two_workers_each_keep_one_rate_of_each_kind_over_a_minute(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    """Clients of the quota begin evenly, so that they do not use up each window together."""
    cluster, limited = fresh_cluster("3.9.1", brokers=2), f"{topic}-limited"
    create_topic(cluster.bootstrap, topic, 2)
    create_topic(cluster.bootstrap, limited)
    quotas = SHARED.replace("<default>", "app") + OF_GROUP
    quotas += f'[[quota]]\ntopic = "{limited}"\nproducer_byte_rate = {QUOTA}\n'
    weirs = weirs_of(start_weir, [cluster.bootstrap] * 2, quotas, (*OPTIONS, "--set", "workers=2"))
    pace = Pace(QUOTA / 4, EVENLY_UNTIL_S, SIZE)
    evenly = [
        RawClient("app", at, produce(NEW, "app", topic, SIZE, partition), Behaviour(), pace)
        for weir in weirs
        for partition, at in leaders(("127.0.0.1", weir.port), topic).items()
    ]
    assert len(evenly) == 4
    of_topic, of_group = clients_of(weirs, limited, 2, "other"), clients_of(weirs, topic, 2, "member")
    drive([*evenly, *of_topic, *of_group], SETTLED_S + MINUTE_S + SWING_S / 2)
    answers = sorted(chain.from_iterable(each.answers for each in evenly), key=lambda each: each.at_s)
    found = [
        trend_rate(answers, SETTLED_S, SETTLED_S + MINUTE_S) / QUOTA,
        *(steady_rate(clients, SETTLED_S) for clients in (of_topic, of_group)),
    ]
    print(f"2 Weirs, 2 workers each: quota, rate of a topic, rate of a group {found} of the rate")
    assert found == pytest.approx([1, 1, 1], abs=TOLERANCE)


def later(seconds: float, call: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, call)
    timer.start()
    return timer


def test_a_weir_cut_off_for_30_s_uses_at_most_its_part_and_repays(start_weir: StartWeir, topic: str) -> None:
    """Its own connections to the broker pass no bytes, and are not closed. Those of its clients go on.

    The other Weir does not hear it either, and uses the whole limit once the former usage has aged out. So
    both together use the limit and a part.
    """
    advertised = free_range(1)
    with Cluster("3.9.1", replication_at=advertised) as cluster:
        behind = int(cluster.replication_upstream.rpartition(":")[2])
        with StallingRelay(advertised, behind, "weir") as relay:
            create_topic(cluster.bootstrap, topic)
            weirs = weirs_of(start_weir, [cluster.bootstrap, f"127.0.0.1:{advertised}"])
            clients = clients_of(weirs, topic, 2)
            resumed_s = SETTLED_S + CUT_S
            timers = [later(SETTLED_S, relay.stop), later(resumed_s, relay.go_on)]
            drive(clients, resumed_s + 20 + MINUTE_S)
            for timer in timers:
                timer.join()
            assert relay.stopped
    cut, through = rate(clients, SETTLED_S, resumed_s), rate(clients, SETTLED_S, resumed_s + 10)
    first, then = rate(clients, resumed_s, resumed_s + 10), rate(clients, resumed_s + 20, resumed_s + 80)
    print(
        f"cut off for {CUT_S} s: {cut:.3f}, with the ten seconds after: {through:.3f}, "
        f"these: {first:.3f}, a minute after: {then:.3f} of the quota"
    )
    assert '"usage is not shared with other Weirs' in weirs[1].log
    aged_out_s = EVENLY_UNTIL_S
    assert through <= 1 + 0.5 * (CUT_S - aged_out_s) / (CUT_S + 10) + TOLERANCE
    assert then == pytest.approx(1, abs=TOLERANCE)


def restart_after_kill(weir: Weir) -> None:
    """Kill it, start it again at the same port, and return once it listens."""
    os.kill(weir.pid, signal.SIGKILL)
    assert weir.stop() == -signal.SIGKILL
    starts = weir.log.count(STARTED)
    weir.start()
    deadline = time.monotonic() + START_S
    while weir.log.count(STARTED) == starts:
        assert time.monotonic() < deadline
        time.sleep(0.05)  # as in Weir.start


def test_a_killed_weir_with_a_state_directory_gives_its_clients_no_second_window(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path
) -> None:
    cluster = fresh_cluster("3.9.1")
    create_topic(cluster.bootstrap, topic)
    options = (*LONG_WINDOW[len(OPTIONS) :], "--set", f"state_dir={tmp_path / 'state'}")
    weir = start_weir(cluster.bootstrap, PER_BROKER, options=options)
    drive(clients_of([weir], topic, 2), 5)
    restart_after_kill(weir)
    second = clients_of([weir], topic, 2)
    drive(second, 4)
    again = rate(second, 0, 4) * 4
    print(f"after kill -9 with state_dir: {again:.2f} seconds' worth within 4 s, without it 30")
    assert again <= 8


def test_no_record_is_lost_while_one_of_two_weirs_restarts_again_and_again(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    """`RESTARTS=200` in the environment for more."""
    cluster = kafka_cluster("3.9.1")
    create_topic(cluster.bootstrap, topic)
    steady, restarted = weirs_of(start_weir, [cluster.bootstrap] * 2)
    both = f"{steady.bootstrap},{restarted.bootstrap}"
    senders = [
        RdSender(bootstrap, topic, 1, ONCE, name)
        for name, bootstrap in {
            "steady": steady.bootstrap,
            "restarted": restarted.bootstrap,
            "both": both,
        }.items()
    ]
    receiver = RdReceiver(steady.bootstrap, topic, 1)
    with senders[0], senders[1], senders[2], receiver:
        flow(senders, [receiver])
        for _ in range(RESTARTS):
            assert restarted.stop() == 0
            restarted.start()
            flow(senders, [receiver])
        settle(senders, [receiver])
    assert_all_arrived(senders, [receiver], once=True)
    print(f"{RESTARTS} restarts, {sum(sender.sent for sender in senders)} records, none lost or doubled")
