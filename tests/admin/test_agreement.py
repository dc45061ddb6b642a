"""/metrics and the JSON API agree: different code reads both from the same counters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.admin.stage import Stage, get, play_with
from tests.kfake.cluster import HOST
from tests.kfake.in_trio import Connection
from tests.proxy.metrics_page import Page
from tests.proxy.stage import PING, PONG
from weir.protocol.api import ApiKey

QUOTAS = """
[[quota]]
client_id = "<default>"
producer_byte_rate = 1000
request_percentage = 10

[[quota]]
user = "bob"
consumer_byte_rate = 2000
mode = "shadow"
"""
UNITS = {"bytes/s": "bytes_per_second", "percent": "percent"}


async def page(stage: Stage) -> Page:
    status, text, _headers = await get(stage.admin, "/metrics")
    assert status == 200
    return Page(text)


def of_entity(metrics: Page, entity: dict[str, Any]) -> dict[str, float]:
    """Return what the metrics say about an entity of the API, under the API's names."""
    labels = {
        name: str(entity[name])
        for name in ("broker", "quota", "user", "client_id", "client_id_prefix")
        if entity[name] is not None
    }
    family = "weir_shadow_entity" if entity["shadow"] else "weir_entity"
    unit = UNITS[entity["unit"]]
    assert metrics.value(f"{family}_entry_info", entry=entity["entry"], **labels) == 1
    return {
        "rate": round(metrics.value(f"{family}_rate_{unit}", **labels), 2),
        "limit": metrics.value(f"{family}_limit_{unit}", **labels),
        "usage": round(metrics.value(f"{family}_utilization", **labels), 4),
        "throttles": metrics.value(f"{family}_throttles_total", **labels),
        "throttled_ms": 1000 * metrics.value(f"{family}_throttle_seconds_total", **labels),
    }


async def agree(stage: Stage) -> dict[str, Any]:
    """Compare the metrics with every list of the API; return the status."""
    await stage.reported()
    stage.stop_clock()
    await stage.look(stage.now_ms())  # a task does so every second
    status = await stage.json("/api/status")  # looks for problems, like another task
    metrics = await page(stage)
    entities = await entities_agree(stage, metrics)
    await brokers_agree(stage, metrics)
    await connections_agree(stage, metrics, status)
    assert metrics["weir_ready"] == status["ready"]
    assert metrics["weir_quotas_configured"] == status["stores"][0]["quotas"]
    names = {dict(labels)["problem"] for labels in metrics.rows("weir_problem")}
    assert names == set(stage.server.health.names())
    assert len(names) == len(status["problems"])
    assert status["totals"]["throttled_entities"] == sum(
        entity["throttled"] for entity in entities if not entity["shadow"]
    )
    stage.resume_clock()
    return dict(status)


async def entities_agree(stage: Stage, metrics: Page) -> list[dict[str, Any]]:
    entities = [
        entity
        for shadow in ("false", "true")
        for entity in (await stage.json(f"/api/entities?shadow={shadow}"))["entities"]
    ]
    for entity in entities:
        told = of_entity(metrics, entity)
        assert told == {name: pytest.approx(entity[name]) for name in told}, entity["sentence"]
    for family in ("weir_entity", "weir_shadow_entity"):
        shown = [entity for entity in entities if entity["shadow"] == (family != "weir_entity")]
        assert len(metrics.rows(f"{family}_utilization")) == len(shown)
    return entities


async def brokers_agree(stage: Stage, metrics: Page) -> None:
    brokers = (await stage.json("/api/brokers"))["brokers"]
    assert metrics["weir_brokers"] == len(brokers) > 0
    assert metrics["weir_brokers_left_out"] == len((await stage.json("/api/brokers"))["outside"])
    for broker in brokers:
        node_id = str(broker["node_id"])
        assert metrics.value("weir_broker_up", broker=node_id) == broker["up"]
        labels = {"broker": node_id, "upstream": broker["address"], "port": str(broker["port"])}
        assert metrics.value("weir_broker_info", **labels) == 1


async def connections_agree(stage: Stage, metrics: Page, status: dict[str, Any]) -> None:
    connections = (await stage.json("/api/connections"))["connections"]
    brokers = (await stage.json("/api/brokers"))["brokers"]
    assert metrics["weir_sessions_open"] == status["totals"]["connections"] == len(connections)
    assert len(connections) == sum(broker["connections"] for broker in brokers)
    received = metrics.rows("weir_received_bytes_total")
    assert received == {
        frozenset({("from", "clients")}): sum(one["in_bytes"] for one in connections),
        frozenset({("from", "brokers")}): sum(one["out_bytes"] for one in connections),
    }


def test_metrics_and_the_api_agree_about_rates_throttles_brokers_connections_and_problems(
    tmp_path: Path,
) -> None:
    quotas = tmp_path / "quotas.toml"
    quotas.write_text(QUOTAS)

    async def script(stage: Stage) -> None:
        await stage.start()
        status = await agree(stage)
        assert (status["ready"], status["problems"], status["totals"]["connections"]) == (True, [], 0)
        async with connected(stage, 3):
            charge(stage)
            status = await agree(stage)
            assert status["totals"]["connections"] == 3
            assert status["totals"]["throttled_entities"] == 1
            stage.server.broker_states.failed(0, "connection refused")
            stage.server.address_book.left_out.note(7)
            status = await agree(stage)
            assert (status["ready"], len(status["problems"])) == (False, 2)

    play_with(script, quotas)


@asynccontextmanager
async def connected(stage: Stage, count: int) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for _ in range(count):
            stream = await stack.enter_async_context(await trio.open_tcp_stream(HOST, stage.clients))
            assert await Connection(stream).ask(PING) == PONG
        yield


def charge(stage: Stage) -> None:
    """Charge alice above her byte rate and below her request time, and bob above the shadow quota."""
    now_ms = stage.now_ms()
    alice, bob = (
        stage.server.quotas.of(0).ledger(*names, now_ms) for names in (("alice", "etl"), ("bob", "app"))
    )
    assert alice.charge_produce(12_000, now_ms) > 0
    assert alice.charge_request(ApiKey.PRODUCE, 5000.0, now_ms) == 0
    bob.charge_fetch(60_000, now_ms)
