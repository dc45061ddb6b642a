"""Events in a topic of a real cluster: the same as /api/events told, and closed to clients."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource

from tests.clients import create_topic
from tests.integration.admin_port import HOST, Admin
from tests.integration.conftest import StartWeir
from tests.integration.topic_contents import records_in
from tests.integration.traffic import PATIENCE_S, until
from tests.integration.weir import Weir
from tests.kafka.fixtures import StartCluster
from tests.raw import NEW, Request, leaders, produce
from tests.wire.connection import Connection
from tests.wire.frames import body_of
from weir.protocol.messages import ProduceResponse
from weir.proxy.control.usage.topic import PARTITIONS, RETENTION_MS

pytestmark = [pytest.mark.broker]

LIMIT = 10_000
"""Bytes/s, of each client-id."""
SENT = {"half": 60_000, "most": 93_000, "over": 150_000}
"""Bytes that each client-id sends at once: 60 %, 93 % and 150 % of its quota in a window of 10 s. The window
may have 11 s; the shares are 54 %, 84 % and 136 % then.
"""
LEVELS = {"half": 50, "most": 80, "over": 100}
QUOTAS = f'[[quota]]\nclient_id = "<default>"\nproducer_byte_rate = {LIMIT}\n'
REFUSED = 29
"""TOPIC_AUTHORIZATION_FAILED."""
OF_ENTITY = ("quota", "user", "client_id", "entry", "limit", "shadow")


def told(admin: Admin) -> Iterator[dict[str, Any]]:
    """Yield the events that /api/events tells: the kept ones, then new ones."""
    with closing(http.client.HTTPConnection(HOST, admin.port, timeout=PATIENCE_S)) as connection:
        connection.request("GET", "/api/events?after=0")
        response = connection.getresponse()
        while line := response.readline():
            if line.startswith(b"data: "):
                yield json.loads(line.removeprefix(b"data: "))


def told_until(admin: Admin, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for event in told(admin):
        found.append(event)
        if event["kind"] == kind:
            return found
    raise AssertionError(f"no {kind} among {found}")


def send(weir: Weir, request: Request, topic: str, client_id: str) -> ProduceResponse:
    leader = leaders((HOST, weir.port), topic)[0]
    with Connection(leader, client_id) as connection:
        return body_of(connection.exchange(request.frame), ProduceResponse, NEW.produce)


def in_topic(bootstrap: str, topic: str) -> dict[int, tuple[bytes, int, dict[str, Any]]]:
    """Return key, partition and value of the events in the topic, by their ids. Each id is there once."""
    found: dict[int, tuple[bytes, int, dict[str, Any]]] = {}
    for partition, stored in records_in(bootstrap, topic).items():
        for each in stored:
            event = json.loads(each.value)
            assert event["id"] not in found
            found[event["id"]] = each.key, partition, event
    return found


def test_the_events_topic_has_what_api_events_tells_and_refuses_records_of_clients(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster, ours, admin = kafka_cluster("3.9.1"), f"{topic}-events", Admin()
    create_topic(cluster.bootstrap, topic)
    weir = start_weir(cluster.bootstrap, QUOTAS, options=("--set", f"events_topic={ours}", *admin.options))
    waits = {
        name: send(weir, produce(NEW, name, topic, size), topic, name).throttle_time_ms
        for name, size in SENT.items()
    }
    assert [name for name, wait_ms in waits.items() if wait_ms] == ["over"]

    events = told_until(admin, "throttling_ended")
    levels = {event["client_id"]: event["level"] for event in events if event["kind"] == "usage"}
    assert levels == LEVELS
    (began,) = (event for event in events if event["kind"] == "throttling")
    ended = events[-1]
    assert {began["client_id"], ended["client_id"]} == {"over"}
    assert [began[name] for name in OF_ENTITY] == [ended[name] for name in OF_ENTITY]
    assert (began["quota"], began["limit"], began["shadow"]) == ("producer_byte_rate", LIMIT, False)
    assert began["throttled_ms"] == ended["throttled_ms"]
    assert 0 <= ended["throttled_ms"] - waits["over"] < 1000, "the response has the rest of the time"

    metrics = admin.metrics
    until(lambda: metrics()["weir_events_topic_written_total"] >= len(events), lambda: "the last event")
    stored = in_topic(cluster.bootstrap, ours)
    last = ended["id"]
    assert [
        event for _id, (_key, _partition, event) in sorted(stored.items()) if event["id"] <= last
    ] == events
    of_over = [
        (key, partition) for key, partition, event in stored.values() if event.get("client_id") == "over"
    ]
    assert len(of_over) == 3
    assert len(set(of_over)) == 1, "so that a reader gets the events of an entity in order"
    assert metrics()["weir_events_topic_dropped_total"] == 0

    answer = send(weir, produce(NEW, "intruder", ours, 100), ours, "intruder")
    assert [part.error_code for each in answer.responses for part in each.partition_responses] == [REFUSED]
    assert admin.settled().value("weir_protected_topic_requests_refused_total", api="Produce") == 1
    forged = [
        event for _key, _partition, event in in_topic(cluster.bootstrap, ours).values() if "kind" not in event
    ]
    assert forged == []


def test_weir_creates_the_events_topic_with_the_documented_partitions_and_retention(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster, ours = kafka_cluster("3.9.1"), f"{topic}-events"
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    start_weir(cluster.bootstrap, options=("--set", f"events_topic={ours}"))
    until(lambda: ours in client.list_topics(timeout=30).topics, lambda: "the topic")
    assert len(client.list_topics(ours, timeout=30).topics[ours].partitions) == PARTITIONS == 6
    resource = ConfigResource(ConfigResource.Type.TOPIC, ours)
    settings = client.describe_configs([resource])[resource].result(30)
    assert int(settings["retention.ms"].value) == RETENTION_MS == 7 * 24 * 3600 * 1000
