"""quotas = broker: what a real broker stores is what Weir enforces."""

from __future__ import annotations

import pytest

from tests.clients import create_topic
from tests.integration.admin_port import Admin
from tests.integration.conftest import StartWeir
from tests.integration.quota_changes import TIGHT, alter, throttled
from tests.integration.traffic import until
from tests.kafka.fixtures import StartCluster
from weir.proxy.config.config import ConfigError, load
from weir.proxy.control.state_directory import StateDirectory
from weir.proxy.run import choose

pytestmark = [pytest.mark.broker]


@pytest.mark.core
def test_quotas_altered_at_a_broker_are_enforced_by_weir(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster, admin = kafka_cluster("3.9.1"), Admin()
    create_topic(cluster.bootstrap, topic)
    weir = start_weir(cluster.bootstrap, options=("--quotas", "broker", *admin.options))
    client_id = f"app-of-{topic}"

    def quotas() -> float:
        return admin.metrics()["weir_quotas_configured"]

    before = quotas()
    try:
        alter(cluster.ports[0], client_id, TIGHT)
        until(lambda: quotas() == before + 1, lambda: "Weir to mirror it")
        assert throttled(weir.port + 1, client_id, topic)
        ours = admin.settled().rows("weir_quota_throttles_total")
        assert sum(ours.values()) > 0, "Weir enforces, besides the broker"
        alter(weir.port, client_id, None)
        until(lambda: quotas() == before, lambda: "Weir to mirror what went through it")
    finally:
        alter(cluster.ports[0], client_id, None)


def test_a_0_10_cluster_cannot_be_the_quota_store(kafka_cluster: StartCluster) -> None:
    config = load(None, {"upstream": kafka_cluster("0.10.2.2").bootstrap, "quotas": "broker"})
    with pytest.raises(ConfigError, match=r"quotas = broker: .* brokers before 2\.6"):
        choose(config, StateDirectory(None))
