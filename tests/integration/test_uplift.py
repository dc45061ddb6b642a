"""Uplift in front of real old brokers: what a client of newer versions is told is what the broker says."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from tests.clients import ClientError
from tests.clients.admin import Admin, Step
from tests.clients.exchange import part
from tests.clients.kafka_python import KafkaPythonAdmin
from tests.clients.librdkafka_admin import LibrdkafkaAdmin
from tests.integration.conftest import StartWeir
from tests.integration.mutable import await_partitions, mutable, quota
from tests.integration.uplift_story import Teller, tell, versions_at
from tests.integration.weir import Weir
from tests.integration.weir_log import assert_no_complaint
from tests.java.admin import JavaAdmin
from tests.java.kafka_tools import KafkaTools
from tests.kafka.fixtures import StartCluster
from tests.kafka.releases import core_at
from tests.kafka.settings import HOST
from tests.raw import Address
from weir.protocol.api import ApiKey

pytestmark = [pytest.mark.broker]

OLD: Final = ["0.10.2.2", "1.1.1"]
RECORDS: Final = 1000
LENT_AT_MOST: Final = 5
"""CreateTopics and DeleteTopics of 0.10.2.2 are offered five versions further."""


@pytest.mark.parametrize("version", core_at(OLD, core=("0.10.2.2",)))
def test_uplifted_responses_agree_in_every_version_with_and_without_quota(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = mutable(kafka_cluster, version)
    broker = (HOST, cluster.ports[0])
    spoken = versions_at(broker)
    direct = Teller(f"direct-{topic}", broker, {key: found.max for key, found in spoken.items()})
    tell(direct)
    for kind, quotas in {"free": "", "limited": quota(1_000_000)}.items():
        with part(kind):
            weir = start_weir(cluster.bootstrap, quotas)
            assert_told_alike(f"{kind}-{topic}", (HOST, weir.port), direct)
            assert_no_complaint(weir.log)


def assert_told_alike(name: str, lent: Address, direct: Teller) -> None:
    """Through Weir a client is told the same, in any number of versions above the broker's newest."""
    spoken, offered = direct.versions, {key: found.max for key, found in versions_at(lent).items()}
    lent_apis = {key for key, newest in offered.items() if newest > spoken[key]}
    assert lent_apis - {ApiKey.API_VERSIONS} <= direct.asked, "the story leaves none out"
    assert max(offered[key] - spoken[key] for key in lent_apis) <= LENT_AT_MOST

    def tell_above(above: int) -> Teller:
        versions = {key: min(spoken[key] + above, newest) for key, newest in offered.items()}
        teller = Teller(f"above-{above}-{name}", lent, versions)
        tell(teller)
        return teller

    levels = range(1, LENT_AT_MOST + 1)
    with ThreadPoolExecutor() as pool:
        tellers = dict(zip(levels, pool.map(tell_above, levels), strict=True))
    for above, teller in tellers.items():
        assert [said for said, _ in teller.heard] == [said for said, _ in direct.heard]
        for (said, told), (_, expected) in zip(teller.heard, direct.heard, strict=True):
            assert told == expected, f"{said}, {above} above the broker's newest"
        assert teller.throttle_ms == {0}


@pytest.mark.oracle
@pytest.mark.parametrize("version", OLD)
def test_admin_clients_understand_uplifted_responses(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    """Java's is of 4.2.0. What 0.10.2.2 has no API for, each refuses by itself."""
    cluster = mutable(kafka_cluster, version)
    weir = start_weir(cluster.bootstrap)
    found = {}

    def administer(client: str) -> None:
        a, b = names = (f"{topic}-{client}-a", f"{topic}-{client}-b")
        with part(client):
            created, there, grown, gone = admin(client, weir).run(
                Step("create", {a: 3, b: 2}),
                Step("describe", dict.fromkeys(names, 0)),
                Step("grow", {a: 4}),
                Step("delete", {b: 0}),
            )
            errors = [outcome.errors for outcome in (created, there, gone)]
            assert errors == [{a: "", b: ""}, {a: "", b: ""}, {b: ""}]
            assert there.partitions == {a: 3, b: 2}
            if client == "java":
                assert created.partitions == dict.fromkeys(names, "UnsupportedVersionException"), "not known"
            assert grown.errors == {a: NOT_THERE[client] if version == "0.10.2.2" else ""}
        found.update({a: 3 if version == "0.10.2.2" else 4, b: 0})

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(administer, client) for client in NOT_THERE]:
            done.result()
    await_partitions(cluster, found)
    assert_no_complaint(weir.log)


def admin(client: str, weir: Weir) -> Admin:
    if client == "java":
        return JavaAdmin("4.2.0", weir.bootstrap)
    if client == "kafka-python":
        return KafkaPythonAdmin(weir.bootstrap)
    return LibrdkafkaAdmin(weir.bootstrap)


NOT_THERE: Final = {
    "java": "UnsupportedVersionException",
    "kafka-python": "IncompatibleBrokerVersion",
    "librdkafka": "_UNSUPPORTED_FEATURE",
}


def test_kafka_topics_of_4_2_works_at_0_10_only_with_uplift(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster, newest = mutable(kafka_cluster, "0.10.2.2"), mutable(kafka_cluster, "4.2.0")
    weir = start_weir(cluster.bootstrap)
    create = ("--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1")
    with pytest.raises(ClientError, match="does not support CREATE_TOPICS"):
        KafkaTools(newest, cluster.bootstrap).topics(*create)
    tools = KafkaTools(newest, weir.bootstrap)
    assert f"Created topic {topic}." in tools.topics(*create)
    await_partitions(cluster, {topic: 2})
    assert topic in tools.list_topics()
    tools.topics("--delete", "--topic", topic)
    await_partitions(cluster, {topic: 0})
    assert_no_complaint(weir.log)


def test_tools_of_kafka_4_2_work_at_a_broker_of_1_1(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    """What they do without Weir, they do through it."""
    cluster, newest = mutable(kafka_cluster, "1.1.1"), mutable(kafka_cluster, "4.2.0")
    weir = start_weir(cluster.bootstrap)
    tools = KafkaTools(newest, weir.bootstrap)
    tools.topics("--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1")
    tools.topics("--alter", "--topic", topic, "--partitions", "3")
    await_partitions(cluster, {topic: 3})
    assert tools.partitions(topic) == {0: 0, 1: 0, 2: 0}
    assert tools.produce(topic, RECORDS, 100) == RECORDS
    assert tools.consume(topic, RECORDS, topic) == RECORDS
    assert sum(current for current, _ in tools.offsets(topic, topic).values()) == RECORDS
    tools.topics("--delete", "--topic", topic)
    await_partitions(cluster, {topic: 0})
    assert_no_complaint(weir.log)
