"""What real admin clients make of a mutation quota (KIP-599), in front of old brokers and of new ones."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.clients import ClientError
from tests.clients.admin import Step
from tests.clients.kafka_python import KafkaPythonAdmin
from tests.clients.librdkafka_admin import LibrdkafkaAdmin
from tests.integration.conftest import StartWeir
from tests.integration.mutable import await_partitions, burst, mutable, quota
from tests.integration.topic_creation import FIVE, NEVER
from tests.integration.weir_log import assert_no_complaint
from tests.java.admin import JavaAdmin
from tests.java.kafka_tools import KafkaTools
from tests.kafka.fixtures import StartCluster
from tests.kafka.releases import core_at

pytestmark = [pytest.mark.broker]

BROKERS: Final = ["0.10.2.2", "3.9.1"]
JAVA: Final = "4.4.0"
JAVA_REFUSED: Final = "ThrottlingQuotaExceededException"
PYTHON_REFUSED: Final = "ThrottlingQuotaExceededError"
SLOW: Final = burst(5)
"""With a quota of 1: five at once, and a token comes back every second."""


@pytest.mark.oracle
@pytest.mark.parametrize("version", BROKERS)
def test_javas_admin_client_retries_until_tokens_are_available(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    """It is that of 4.4.0, with its own defaults; 0.10.2.2 is ten years older."""
    cluster = mutable(kafka_cluster, version)
    weir = start_weir(cluster.bootstrap, quota(1), options=SLOW)
    a, b, c, d = (f"{topic}-{letter}" for letter in "abcd")
    both, neither = JavaAdmin(JAVA, weir.bootstrap).run(
        Step("create", {a: 8, b: 4}), Step("create", {c: 20, d: 1}, retry=False)
    )
    assert both.errors == {a: "", b: ""}
    assert both.seconds >= 2.9, "8 of 5 tokens leave 3 s to wait, until b is admitted"
    assert neither.errors[d] == JAVA_REFUSED, "after c, be that admitted or not, there is no token"
    assert 0 < neither.throttle_ms[d] <= 20_000
    await_partitions(cluster, {a: 8, b: 4, d: 0})
    assert_no_complaint(weir.log)


@pytest.mark.parametrize("version", BROKERS)
def test_kafka_topics_prints_the_quota_error(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str, tmp_path: Path
) -> None:
    """It tells its AdminClient not to wait."""
    cluster = mutable(kafka_cluster, version)
    weir = start_weir(cluster.bootstrap, quota(NEVER), options=FIVE)
    tools = KafkaTools(mutable(kafka_cluster, JAVA), weir.bootstrap)
    config = tmp_path / "admin.properties"
    config.write_text("client.id=admin\n")
    a, b = f"{topic}-a", f"{topic}-b"
    options = ("--replication-factor", "1", "--command-config", str(config))
    assert f"Created topic {a}." in tools.topics("--create", "--topic", a, "--partitions", "8", *options)
    with pytest.raises(ClientError, match=rf"{JAVA_REFUSED}: The throttling quota has been exceeded\."):
        tools.topics("--create", "--topic", b, "--partitions", "1", *options)
    await_partitions(cluster, {a: 8, b: 0})
    assert_no_complaint(weir.log)


@pytest.mark.parametrize("version", core_at(BROKERS, core=("3.9.1",)))
def test_kafka_python_reports_error_89(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = mutable(kafka_cluster, version)
    weir = start_weir(cluster.bootstrap, quota(NEVER), options=FIVE)
    a, b, c = (f"{topic}-{letter}" for letter in "abc")
    create = Step("create", {a: 3, b: 3, c: 1})
    (created,) = KafkaPythonAdmin(weir.bootstrap, "one").run(create)
    assert created.errors == dict.fromkeys((a, b, c), PYTHON_REFUSED), "it raises one error for all of a call"
    await_partitions(cluster, {a: 3, b: 3, c: 0})
    deleted, again = KafkaPythonAdmin(weir.bootstrap, "two").run(Step("delete", {a: 0, b: 0}), create)
    assert deleted.errors == {a: "", b: ""}, "6 of 5 tokens: the second is admitted with 2"
    assert again.errors == dict.fromkeys((a, b, c), PYTHON_REFUSED)
    assert_no_complaint(weir.log)


@pytest.mark.parametrize("version", BROKERS)
def test_librdkafka_waits_for_the_quota_without_an_error(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    """Its versions of the requests do not know error 89: all is done, and its connection held up.

    With one broker: KRaft clusters name any of several as the controller, and each has its own connection.
    """
    cluster = kafka_cluster(version)
    weir = start_weir(cluster.bootstrap, quota(1), options=SLOW)
    a, b = f"{topic}-a", f"{topic}-b"
    first, second, third = LibrdkafkaAdmin(weir.bootstrap).run(
        Step("create", {a: 8}), Step("create", {b: 2}), Step("delete", {a: 0})
    )
    assert [outcome.errors for outcome in (first, second, third)] == [{a: ""}, {b: ""}, {a: ""}]
    assert first.seconds + second.seconds >= 2.9, "8 of 5 tokens leave 3 s to wait"
    assert second.seconds + third.seconds >= 1.9, "2 more, when there are none, leave 2 s to wait"
    await_partitions(cluster, {a: 0, b: 2})
    assert_no_complaint(weir.log)
