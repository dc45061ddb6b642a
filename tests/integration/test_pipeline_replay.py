"""A replay of what was recorded, under the quotas that were in force, tells what clients were told."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients import KafkaPython, Librdkafka, create_topic
from tests.clients.admin import Step
from tests.clients.exchange import some_messages
from tests.clients.librdkafka_admin import LibrdkafkaAdmin
from tests.integration.conftest import StartWeir
from tests.integration.pipeline_jobs import outcome, rows
from tests.kafka.fixtures import StartCluster

pytestmark = [pytest.mark.broker, pytest.mark.spark]

SECONDS = 20.0
RATE = 400_000
BYTES = int(RATE * (SECONDS + 5))
"""Ten seconds' worth pass at once, then so much per second."""
QUOTAS = f"""
[[quota]]
client_id = "writers"
producer_byte_rate = {RATE}

[[quota]]
client_id = "<default>"
producer_byte_rate = {RATE // 2}

[[quota]]
client_id = "reader"
consumer_byte_rate = {RATE}

[[quota]]
client_id = "asker"
request_percentage = 0.5

[[quota]]
client_id = "maker"
controller_mutation_rate = 1
"""
TOLERANCE = 0.02
FEW = 20
"""Throttles of one client: where there are fewer, one more or less is more than the tolerance."""
NAME = "quotas.toml"
SMALL_BATCHES, SMALL_FETCHES = {"batch.size": 50_000}, {"fetch.message.max.bytes": 50_000}
"""So there are many short waits, not a few long ones."""


def test_replayed_throttle_times_equal_those_recorded_at_a_real_broker(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path
) -> None:
    cluster = kafka_cluster("3.9.1")
    records, lake = tmp_path / "records", tmp_path / "lake"
    create_topic(cluster.bootstrap, topic)
    create_topic(cluster.bootstrap, f"{topic}-full")
    Librdkafka().produce(cluster.bootstrap, f"{topic}-full", messages(BYTES), config=SMALL_BATCHES)
    usage = ("--usage-dir", str(records), "--usage-interval-ms", "1000", "--usage-trace-share", "1")
    weir = start_weir(cluster.bootstrap, QUOTAS, options=usage)
    play(weir.bootstrap, topic)
    assert weir.stop() == 0

    outcome("ingest", lake, "--files", str(records), "--once")
    found = outcome("replay", lake, str(weir.quota_file), "--from", "trace", "--compare-sources")
    recorded, replayed, throttles = by_client(lake)
    assert {quota for quota, _client_id in recorded} == {
        "producer_byte_rate",
        "consumer_byte_rate",
        "request_percentage",
        "controller_mutation_rate",
    }
    many = {key: waited for key, waited in recorded.items() if throttles[key] > FEW}
    assert {client_id for _quota, client_id in many} >= {"writers", "py", "reader", "asker"}
    assert {key: replayed[key] for key in many} == pytest.approx(many, rel=TOLERANCE)
    assert by_quota(replayed) == pytest.approx(by_quota(recorded), rel=TOLERANCE)

    told = from_usage(found["notes"])
    assert told.keys() == by_quota(recorded).keys()
    assert all(0.5 < share < 2 for share in told.values()), told
    print(f"recorded {by_quota(recorded)}, replayed {by_quota(replayed)}, of usage {told}")


def messages(length: int) -> list[bytes]:
    return some_messages(length // 10_000, 10_000)


def play(bootstrap: str, topic: str) -> None:
    """All clients at once, some 20 s: two that share a budget, two libraries, each kind of quota."""
    running: list[Future[object]]
    with ThreadPoolExecutor() as pool:
        half = messages(BYTES // 2)
        running = [
            pool.submit(
                Librdkafka().produce, bootstrap, topic, half, client_id="writers", config=SMALL_BATCHES
            ),
            pool.submit(
                Librdkafka().produce, bootstrap, topic, half, client_id="writers", config=SMALL_BATCHES
            ),
            pool.submit(KafkaPython().produce, bootstrap, topic, half, client_id="py"),
            pool.submit(
                Librdkafka().consume,
                bootstrap,
                f"{topic}-full",
                BYTES // 10_000,
                client_id="reader",
                config=SMALL_FETCHES,
            ),
            pool.submit(ask, bootstrap),
            pool.submit(make, bootstrap, topic),
        ]
        for client in running:
            client.result()


def ask(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "client.id": "asker"})
    until_s = time.monotonic() + SECONDS
    while time.monotonic() < until_s:
        admin.list_topics(timeout=30)


def make(bootstrap: str, topic: str) -> None:
    names = [f"{topic}-{number}" for number in range(40)]
    admin = LibrdkafkaAdmin(bootstrap, "maker")
    until_s = time.monotonic() + SECONDS
    for name in names:
        if time.monotonic() < until_s:
            admin.run(Step("create", {name: 1}))


Waits = dict[tuple[str, str], float]
"""By quota and client-id: throttle times in s."""


def by_client(lake: Path) -> tuple[Waits, Waits, Waits]:
    """Recorded and replayed; and how many there were."""
    recorded, replayed, throttles = Waits(), Waits(), Waits()
    for row in rows(lake, "replay"):
        key = row["quota"], row["client_id"]
        waited = {"recorded": recorded, NAME: replayed}[row["candidate"]]
        assert row["throttle_ms_lower"] == row["throttle_ms_upper"], "exact under the quotas in force"
        if row["throttle_ms_lower"]:
            waited[key] = waited.get(key, 0.0) + row["throttle_ms_lower"] / 1000
        if row["candidate"] == "recorded":
            throttles[key] = throttles.get(key, 0) + row["violations"]
    return recorded, replayed, throttles


def by_quota(waits: Waits) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for (quota, _client_id), waited in waits.items():
        found[quota] += waited
    return dict(found)


def from_usage(notes: list[str]) -> dict[str, float]:
    """What a replay of usage came to, as a share of that of traces, by quota."""
    line = re.compile(rf"{NAME}, (\w+): throttle times ([\d.,]+) s of usage, ([\d.,]+) s of traces")
    return {
        found[1]: float(found[2].replace(",", "")) / float(found[3].replace(",", ""))
        for found in map(line.match, notes)
        if found is not None
    }
