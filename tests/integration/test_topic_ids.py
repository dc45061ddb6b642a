"""Clients that talk all the time, while topics get rates, leaders move, and topics become protected.

Brokers from 4.1 on take Produce v13, brokers from 3.1 on Fetch v13: both identify topics by id.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.integration.admin_port import Admin
from tests.integration.conftest import StartWeir
from tests.integration.reassigning import reassign
from tests.integration.traffic import (
    AT_LEAST_ONCE,
    PyReceiver,
    PySender,
    RdReceiver,
    RdSender,
    create_spread,
    flow,
    leaders,
    settle,
    until,
)
from tests.integration.weir import Weir
from tests.integration.weir_log import assert_no_complaint, entries
from tests.java.paced import Pace, Sent, produce
from tests.kafka.fixtures import StartCluster

pytestmark = [pytest.mark.broker, pytest.mark.oracle]

RATE: Final = '[[quota]]\ntopic = "{}"\nproducer_byte_rate = 10000000\nconsumer_byte_rate = 10000000\n'


def with_ids(admin: Admin) -> set[str]:
    """The APIs of requests that had topic ids; all have them from v13 on."""
    rows = map(dict, admin.metrics().rows("weir_requests_total"))
    return {row["api"] for row in rows if row["api"] in ("Fetch", "Produce") and int(row["version"]) >= 13}


def put_in_force(weir: Weir, quotas: str) -> None:
    """Write the quota file, and return when Weir has read it."""

    def loads() -> int:
        return sum(entry["event"] == "quotas loaded" for entry in entries(weir.log))

    before = loads()
    weir.quota_file.write_text(quotas, "utf-8")
    until(lambda: loads() > before, lambda: "the quotas are not loaded")


def java(bootstrap: str, topic: str, stop: Path) -> list[Sent]:
    return produce("4.2.0", {"bootstrap.servers": bootstrap}, Pace(topic, 1, 100_000, 20.0, str(stop)))


@pytest.mark.parametrize("version", ["4.4.0", "3.9.1"])
def test_no_client_stops_while_rates_come_and_go_leaders_move_and_topics_become_protected(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str, tmp_path: Path
) -> None:
    cluster, admin = kafka_cluster(version, brokers=2), Admin()
    others, of_java = f"{topic}-others", f"{topic}-java"
    weir = start_weir(cluster.bootstrap, options=admin.options)
    for each in (topic, others, of_java):
        create_spread(cluster.bootstrap, each, [[0]])
    senders = RdSender(weir.bootstrap, topic, 1, AT_LEAST_ONCE), PySender(weir.bootstrap, topic, 1)
    readers = RdReceiver(weir.bootstrap, topic, 1), PyReceiver(weir.bootstrap, topic, f"group-{topic}")
    audiences = [[one] for one in readers]
    with ThreadPoolExecutor() as pool, ExitStack() as talking:
        talking.callback((tmp_path / "stop").touch)
        sent = pool.submit(java, weir.bootstrap, of_java, tmp_path / "stop")
        for one in (*senders, *readers):
            talking.enter_context(one)
        flow(senders, *audiences)
        wanted = {"Fetch", "Produce"} if version == "4.4.0" else {"Fetch"}
        until(lambda: wanted <= with_ids(admin), lambda: "no client uses topic ids")
        mine = RATE.format(topic) + RATE.format(of_java)
        for quotas in (RATE.format(others), mine, ""):
            put_in_force(weir, quotas)
            for _ in range(3):
                flow(senders, *audiences)
            if quotas == mine:
                reassign(cluster, weir, [topic, of_java], to=1, plan=tmp_path / "plan.json")
                until(lambda: leaders(weir.bootstrap, topic) == [1], lambda: f"{topic} to be led by broker 1")
                flow(senders, *audiences)
        assert_no_complaint(weir.log)
        weir.restart("--set", f"events_topic={topic}-events")
        for _ in range(3):
            flow(senders, *audiences)
        (tmp_path / "stop").touch()
        settle(senders, *audiences)
        acknowledged = sent.result()
    assert [one.error for one in acknowledged if one.error is not None or one.acked_s is None] == []
    closed = {entry.get("reason") for entry in entries(weir.log) if entry["event"] == "connection closed"}
    assert closed.isdisjoint({"topics_unnamed", "topic_protected", "request_version_unknown"})
