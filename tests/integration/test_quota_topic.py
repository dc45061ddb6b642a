"""Quotas in a topic of a real cluster: every Weir follows it, and traffic does not stop when it is gone."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from tests.clients import create_topic
from tests.integration.admin_port import Admin
from tests.integration.conftest import StartWeir
from tests.integration.quota_changes import PRODUCE, TIGHT, alter, throttled
from tests.integration.traffic import until
from tests.integration.weir import Weir
from tests.kafka import Cluster
from tests.kafka.fixtures import StartCluster
from tests.kafka.sasl import OAUTHBEARER, WEIR, mechanisms, unsecured_token
from tests.proxy.token_endpoint import token_endpoint
from weir.cli.exits import DONE
from weir.cli.main import weir
from weir.proxy.config.config import Config, load
from weir.proxy.control.cluster.access import Access
from weir.proxy.control.cluster.discovery import DiscoveryError, discover
from weir.proxy.control.stores.topic import topic_store
from weir.quotas import Entity, QuotaTable
from weir.quotas.table.quota_table import QuotaKey

pytestmark = [pytest.mark.broker]


class Front:
    def __init__(self, start_weir: StartWeir, upstream: str, topic: str, *options: str) -> None:
        self.admin = Admin()
        store = ("--quotas", f"topic:{topic}")
        admins = ("--quota-admins", "User:ANONYMOUS")
        self.weir: Weir = start_weir(
            upstream, options=(*store, *admins, *self.admin.options, "--set", "refresh_s=1", *options)
        )

    @property
    def quotas(self) -> int:
        return int(self.admin.metrics()["weir_quotas_configured"])

    @property
    def available(self) -> bool:
        return bool(self.admin.metrics().value("weir_quota_store_available", store="topic"))


@pytest.mark.core
def test_every_weir_follows_the_quota_topic_and_a_restart_loses_nothing(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster = kafka_cluster("3.9.1")
    store = f"{topic}-quotas"
    create_topic(cluster.bootstrap, topic)
    one, other = (Front(start_weir, cluster.bootstrap, store) for _ in range(2))
    assert (one.quotas, other.quotas) == (0, 0)
    alter(one.weir.port, "app", TIGHT)
    assert one.quotas == 1, "in force when it is answered"
    until(lambda: other.quotas == 1, lambda: "the other Weir to follow")
    assert throttled(other.weir.port + 1, "app", topic)
    assert not throttled(other.weir.port + 1, "another", topic)
    assert one.weir.stop() == 0
    alter(other.weir.port, "late", TIGHT)
    again = Front(start_weir, cluster.bootstrap, store)
    assert again.quotas == 2, "both are there before it listens"
    for client_id in ("app", "late"):
        alter(again.weir.port, client_id, None)
    until(lambda: other.quotas == 0, lambda: "the other Weir to forget")
    assert not throttled(other.weir.port + 1, "late", topic)
    assert _settings_of(cluster, store)["cleanup.policy"] == "compact"


def test_traffic_continues_under_the_last_known_quotas(
    fresh_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path
) -> None:
    """Broker 1 alone has the quota topic, and dies; broker 0 goes on. Who starts then has a snapshot."""
    cluster = fresh_cluster("3.9.1", brokers=2)
    store, states = f"{topic}-quotas", (tmp_path / "front", tmp_path / "late")
    for state in states:
        state.mkdir()
    snapshot, copied = (state / "last-quotas.toml" for state in states)
    placed = (
        NewTopic(topic, 1, replica_assignment=[[0]]),
        NewTopic(store, 1, replica_assignment=[[1]], config={"cleanup.policy": "compact"}),
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    for future in admin.create_topics(list(placed)).values():
        future.result(30)
    front = Front(start_weir, cluster.bootstrap, store, "--set", f"state_dir={states[0]}")
    alter(front.weir.port, "app", TIGHT)
    assert front.available
    until(lambda: snapshot.exists() and "app" in snapshot.read_text(), lambda: "the snapshot")
    cluster.kill(1)
    until(lambda: not front.available, lambda: "the metric to tell")
    assert throttled(front.weir.port + 1, "app", topic), "the last known quotas stay in force"
    assert not throttled(front.weir.port + 1, "another", topic)
    copied.write_bytes(snapshot.read_bytes())
    late = Front(start_weir, cluster.bootstrap, store, "--set", f"state_dir={states[1]}")
    assert (late.quotas, late.available) == (1, False)
    assert throttled(late.weir.port + 1, "app", topic)
    cluster.restart(1)
    until(lambda: front.available and late.available, lambda: "the store to be there again")
    alter(late.weir.port, "app", None)
    until(lambda: front.quotas == 0, lambda: "the first Weir to follow again")


# Logging in


@pytest.mark.parametrize("version", ["0.10.2.2", "3.9.1"])
def test_weirs_connections_to_the_quota_topic_authenticate(
    kafka_cluster: StartCluster, topic: str, tmp_path: Path, version: str
) -> None:
    cluster = kafka_cluster(version)
    password, wrong = tmp_path / "password", tmp_path / "wrong"
    password.write_text(f"{WEIR.password}\n")
    wrong.write_text("nonsense-5c1d\n")

    def configured(mechanism: str, file: Path = password, **more: str) -> Config:
        return load(
            None,
            {
                "upstream": cluster.sasl_bootstrap,
                "upstream_sasl_mechanism": mechanism,
                "upstream_sasl_username": WEIR.name,
                "upstream_sasl_password_file": str(file),
                "quotas": f"topic:{topic}-quotas",
                **more,
            },
        )

    async def nodes(config: Config) -> set[int]:
        return set(await discover(config.upstream, 10.0, Access.of(config)))

    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        assert trio.run(nodes, configured(mechanism)) == {0}
        with pytest.raises(DiscoveryError, match="does not accept 'weir' with") as refusal:
            trio.run(nodes, configured(mechanism, wrong))
        assert refusal.value.refused
        assert "nonsense" not in str(refusal.value)
    if OAUTHBEARER in mechanisms(version):
        grant = {"access_token": unsecured_token({"sub": WEIR.name, "exp": 1 << 32}), "expires_in": 60}
        with token_endpoint((200, grant), (200, {**grant, "access_token": "no.token."})) as endpoint:
            config = configured(OAUTHBEARER, upstream_sasl_token_url=endpoint.url)
            assert trio.run(nodes, config) == {0}
            config = configured(OAUTHBEARER, upstream_sasl_token_url=endpoint.url)
            with pytest.raises(DiscoveryError, match="does not accept 'weir' with OAUTHBEARER") as refusal:
                trio.run(nodes, config)
            assert refusal.value.refused
    login = ["--set", "upstream_sasl_mechanism=PLAIN", "--set", f"upstream_sasl_username={WEIR.name}"]
    login += ["--set", f"upstream_sasl_password_file={password}"]
    shown = CliRunner().invoke(weir, ["probe", "--versions", "--upstream", cluster.sasl_bootstrap, *login])
    assert (shown.exit_code, "SaslHandshake" in shown.output) == (DONE, True), shown.output
    changes: dict[tuple[Entity, QuotaKey], float | None] = {(Entity(user="alice"), PRODUCE): 5.0}
    expected = QuotaTable({(Entity(user="alice"), PRODUCE): 5.0})
    assert trio.run(topic_store(configured("SCRAM-SHA-256")).alter, changes) == expected
    assert trio.run(topic_store(configured("PLAIN")).load) == expected


def _settings_of(cluster: Cluster, topic: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(30)
    return {name: str(entry.value) for name, entry in found.items()}
