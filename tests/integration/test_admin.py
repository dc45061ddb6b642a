"""The admin endpoint in front of a real broker: its figures are what the client saw."""

from __future__ import annotations

import pytest

from tests.clients import Librdkafka, create_topic
from tests.clients.exchange import some_messages
from tests.integration.admin_port import PATIENCE_S, Admin
from tests.integration.conftest import StartWeir
from tests.kafka.fixtures import StartCluster

pytestmark = [pytest.mark.broker]

QUOTA = 1_000_000
QUOTAS = f"""
[[quota]]
client_id = "app"
producer_byte_rate = {QUOTA}
"""
SIZE, COUNT = 100_000, 160
"""16 MB: ten are the burst that Kafka's windows allow, the rest takes six seconds."""


def test_metrics_agree_with_a_real_clients_throttle_times(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster = kafka_cluster("3.9.1")
    admin = Admin()
    weir = start_weir(cluster.bootstrap, QUOTAS, options=admin.options)
    create_topic(cluster.bootstrap, topic)
    before = admin.metrics()
    assert before.rows("weir_entity_bytes_total") == {}
    messages = some_messages(COUNT, SIZE)
    seen = Librdkafka().produce(weir.bootstrap, topic, messages, client_id="app", timeout_s=PATIENCE_S)
    page = admin.settled()
    app = {"broker": "0", "quota": "producer_byte_rate", "user": "", "client_id": "app"}
    # Requests have heads, and records have some: less than 2 % of 100 KB.
    assert COUNT * SIZE < page.value("weir_entity_bytes_total", **app) < 1.02 * COUNT * SIZE
    assert page.value("weir_entity_limit_bytes_per_second", **app) == QUOTA
    # What is left of it after ten seconds or more; how much, depends on how fast the machine was.
    assert 0 < page.value("weir_entity_rate_bytes_per_second", **app) <= 1.02 * COUNT * SIZE / 10
    # A client is told what is left of a wait when its answer comes, if anything is.
    told_s = sum(seen.throttle_ms) / 1000
    throttle_s = page.value("weir_entity_throttle_seconds_total", **app)
    assert 0 < len(seen.throttle_ms) <= page.value("weir_entity_throttles_total", **app)
    assert 0 < told_s <= throttle_s + 0.001
    assert page["weir_throttles_total"] >= page.value("weir_entity_throttles_total", **app)
    totals = {"broker": "0", "quota": "producer_byte_rate"}
    for what in ("bytes", "throttles", "throttle_seconds"):
        name = f"{what}_total"
        assert page.value(f"weir_quota_{name}", **totals) == page.value(f"weir_entity_{name}", **app)
    produced = {
        labels: n for labels, n in page.rows("weir_requests_total").items() if ("api", "Produce") in labels
    }
    assert sum(produced.values()) >= page.value("weir_entity_throttles_total", **app)
    assert page["weir_requests_not_understood_total"] == 0
    assert page["weir_sessions_opened_total"] >= 1
    assert page["weir_ready"] == 1
    assert weir.stop() == 0
