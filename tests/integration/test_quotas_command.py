"""`weir quotas` against real clusters: imports of what Kafka's own tools have set, and each store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

from tests.java.kafka_tools import kafka_tool
from tests.kafka import Cluster
from tests.kafka.fixtures import StartCluster
from weir.cli.exits import DONE, INCOMPLETE
from weir.cli.main import weir
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable, parse

pytestmark = [pytest.mark.broker]

PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
CONNECT = QuotaKey.CONNECTION_CREATION_RATE
ODD = "CN=Ä l,O=*~+/%"
PASSWORD = "correct-horse"  # noqa: S105  # a test user's
IN_ZOOKEEPER = QuotaTable(
    {
        (Entity(ODD), PRODUCE): 1024.0,
        (Entity(ODD), QuotaKey.REQUEST_PERCENTAGE): 12.5,
        (Entity(DEFAULT, DEFAULT), PRODUCE): 2048.0,
        (Entity(DEFAULT, DEFAULT), FETCH): 9223372036854775807.0,
        (Entity("alice", "a b=%"), FETCH): 77.0,
        (Entity(ip=DEFAULT), CONNECT): 7.0,
    }
)


def quotas(*arguments: str, exit_code: int = DONE) -> str:
    """What `weir quotas` prints on stdout, having said no secret."""
    result = CliRunner().invoke(weir, ["quotas", *arguments])
    assert result.exit_code == exit_code, result.output
    for secret in (PASSWORD, "open-sesame", "stored_key", "server_key", "salt"):
        assert secret not in result.output
    return result.stdout


def in_json(*arguments: str, exit_code: int = DONE) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(quotas(*arguments, "--json", exit_code=exit_code))
    return found


def configure(cluster: Cluster, *arguments: str) -> None:
    where = ("--bootstrap-server", cluster.bootstrap)
    if cluster.version.startswith("2."):
        where = ("--zookeeper", cluster.zookeeper)
    done = kafka_tool(cluster, "kafka.admin.ConfigCommand", *where, "--alter", *arguments)
    assert done.status == 0, done.out + done.err


def protect(cluster: Cluster, path: str, digest: str) -> None:
    client = KazooClient(cluster.zookeeper)
    client.start()
    client.set_acls(path, [make_digest_acl(*digest.split(":"), all=True)])
    client.stop()
    client.close()


def test_quotas_that_kafka_configs_wrote_to_zookeeper_are_imported(
    fresh_cluster: StartCluster, tmp_path: Path
) -> None:
    """Compared with what was asked for, and with what a broker of that cluster tells of it."""
    cluster = fresh_cluster("2.8.2")
    scram = f"SCRAM-SHA-256=[iterations=4096,password={PASSWORD}]"
    of_odd = f"producer_byte_rate=1024,request_percentage=12.5,consumer_byte_rate=0,{scram}"
    of_default = "producer_byte_rate=2048,consumer_byte_rate=9223372036854775807"
    users, clients = ("--entity-type", "users"), ("--entity-type", "clients")
    configure(cluster, "--add-config", of_odd, *users, "--entity-name", ODD)
    configure(cluster, "--add-config", of_default, *users, "--entity-default", *clients, "--entity-default")
    alices = (*users, "--entity-name", "alice", *clients, "--entity-name", "a b=%")
    configure(cluster, "--add-config", "consumer_byte_rate=77", *alices)
    configure(
        cluster, "--add-config", "connection_creation_rate=7", "--entity-type", "ips", "--entity-default"
    )
    zookeeper = ("import", "--zookeeper", cluster.zookeeper)
    assert parse(quotas(*zookeeper, exit_code=INCOMPLETE)) == IN_ZOOKEEPER
    found = in_json(*zookeeper, exit_code=INCOMPLETE)
    assert (found["nodes"], found["credentials"]) == (6, 1), "two of them are parents that hold nothing"
    (skipped,) = found["skipped"]
    assert skipped["where"] == "/config/users/CN%3D%C3%84%20l%2CO%3D%2A%7E%2B%2F%25"
    assert skipped["key"] == "consumer_byte_rate"
    assert skipped["reason"].endswith("must be a finite number above 0, not 0.0")
    broker = ("import", "--upstream", cluster.bootstrap)
    assert parse(quotas(*broker, exit_code=INCOMPLETE)) == IN_ZOOKEEPER
    (skipped,) = in_json(*broker, exit_code=INCOMPLETE)["skipped"]
    assert (skipped["where"], skipped["key"]) == (f"user {ODD}", "consumer_byte_rate")
    protect(cluster, "/config/users/alice/clients/a%20b%3D%25", "weir:open-sesame")
    skipped = in_json(*zookeeper, exit_code=INCOMPLETE)["skipped"]
    hidden = [line["reason"] for line in skipped if "alice" in line["where"]]
    assert hidden == ["ZooKeeper does not let those without --zookeeper-digest read it"]
    (tmp_path / "digest").write_text("weir:open-sesame\n")
    digest = ("--zookeeper-digest", str(tmp_path / "digest"))
    assert parse(quotas(*zookeeper, *digest, exit_code=INCOMPLETE)) == IN_ZOOKEEPER
    wrong = CliRunner().invoke(weir, ["quotas", *zookeeper[:-1], f"{cluster.zookeeper}/kafka"])
    assert "has no /config: give the chroot of Kafka's zookeeper.connect" in wrong.stderr


def test_quotas_of_brokers_move_into_weirs_file(
    kafka_cluster: StartCluster, topic: str, tmp_path: Path
) -> None:
    """Set by kafka-configs, imported, and deleted where the brokers keep them."""
    cluster = kafka_cluster("3.9.1")
    user = f"{topic} {ODD}"
    configure(
        cluster,
        *("--add-config", "producer_byte_rate=1024,controller_mutation_rate=0.5,request_percentage=12.5"),
        *("--entity-type", "users", "--entity-name", user),
    )
    (tmp_path / "quotas.toml").write_text("# mine\n")
    (tmp_path / "weir.toml").write_text(f'upstream = "{cluster.bootstrap}"\nquotas = "quotas.toml"\n')
    applied = CliRunner().invoke(
        weir, ["quotas", "import", "--config", str(tmp_path / "weir.toml"), "--apply"]
    )
    assert applied.exit_code in (DONE, INCOMPLETE), applied.output
    text = (tmp_path / "quotas.toml").read_text()
    assert text.startswith("# mine\n")
    of_user = {quota: rate for quota, rate in parse(text).values.items() if quota[0].user == user}
    expected = {
        (Entity(user), PRODUCE): 1024.0,
        (Entity(user), QuotaKey.CONTROLLER_MUTATION_RATE): 0.5,
        (Entity(user), QuotaKey.REQUEST_PERCENTAGE): 12.5,
    }
    assert of_user == expected
    store = tmp_path / "broker.toml"
    store.write_text(f'upstream = "{cluster.bootstrap}"\nquotas = "broker"\n')
    assert in_json("delete", "--config", str(store), "--user", user)["source"].startswith("broker 127.0.0.1")
    assert in_json("list", "--config", str(store), "--user", user, exit_code=1)["quotas"] == []


def test_weir_quotas_manages_quotas_in_a_topic(
    kafka_cluster: StartCluster, topic: str, tmp_path: Path
) -> None:
    config = tmp_path / "weir.toml"
    config.write_text(f'upstream = "{kafka_cluster("3.9.1").bootstrap}"\nquotas = "topic:{topic}"\n')
    prefix = ("--config", str(config), "--client-id-prefix", "etl-")
    quotas("set", *prefix, "producer_byte_rate=2MiB")
    quotas("set", *prefix, "--shadow", "producer_byte_rate=1MiB")
    listed = in_json("list", "--config", str(config))
    assert listed["source"] == f"topic {topic}"
    assert [(entry["mode"], entry["quotas"]) for entry in listed["quotas"]] == [
        ("enforce", {"producer_byte_rate": 2097152}),
        ("shadow", {"producer_byte_rate": 1048576}),
    ]
