"""Real clients see that their request time is used up: before a broker that knows no such quota, and before
one that does.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.clients import KafkaPython, Librdkafka, create_topic
from tests.clients.admin import Step
from tests.clients.exchange import some_messages
from tests.integration.conftest import StartWeir
from tests.integration.weir import Weir
from tests.integration.weir_log import assert_no_complaint
from tests.java.admin import JavaAdmin
from tests.java.throttle import java_throttles
from tests.kafka import Cluster
from tests.kafka.fixtures import StartCluster
from tests.kafka.releases import core_at
from tests.wire import frames
from tests.wire.connection import Connection
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import ApiVersionsRequest, ApiVersionsResponse

pytestmark = [pytest.mark.broker]

JAVA: Final = [("0.10.2.2", "3.9.1"), ("4.4.0", "4.4.0")]
"""Broker, and the newest of Java's clients that gets along with it."""
VERSIONS: Final = ["0.10.2.2", "4.4.0"]
COUNT: Final = 5
TINY: Final = """
[[quota]]
client_id = "<default>"
request_percentage = 0.02
"""
"""Two requests or so are within what a second allows; each of the next waits some 0.2 to 1 s."""
WINDOW: Final = ("--set", "quota_window_num=2")
MOST_MS: Final = 1000
"""Nobody waits for more than one window."""
ONE_AT_A_TIME: Final[dict[str, Any]] = {"max.in.flight": 1, "batch.num.messages": 1, "linger.ms": 0}


@pytest.fixture
def throttled(kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str) -> Weir:
    """A Weir that holds every client-id, in front of a broker of this version that has the topic."""
    cluster: Cluster = kafka_cluster(version)
    create_topic(cluster.bootstrap, topic)
    return start_weir(cluster.bootstrap, TINY, options=WINDOW)


@pytest.mark.oracle
@pytest.mark.parametrize(("version", "release"), JAVA)
def test_javas_clients_report_request_time_throttles_in_their_metrics(
    throttled: Weir, topic: str, release: str
) -> None:
    config = {"client.id": "java", "enable.idempotence": "false"}  # 0.10 has it not
    seen = java_throttles(release, throttled.bootstrap, topic, COUNT, config)
    assert seen.read == COUNT
    assert 0 < seen.produce_avg <= seen.produce_max <= MOST_MS
    assert 0 < seen.fetch_avg <= seen.fetch_max <= MOST_MS
    assert_no_complaint(throttled.log)


@pytest.mark.oracle
@pytest.mark.parametrize("version", VERSIONS)
def test_javas_admin_client_waits_for_request_time_throttles_and_completes(
    throttled: Weir, topic: str
) -> None:
    """It has no figure for it: calls that take some milliseconds take the throttle time each."""
    calls = [Step("describe", {topic: 0})] * COUNT
    outcomes = JavaAdmin("4.4.0", throttled.bootstrap, {"client.id": "java"}).run(*calls)
    assert [outcome.errors for outcome in outcomes] == [{topic: ""}] * COUNT
    assert [outcome.partitions for outcome in outcomes] == [{topic: 1}] * COUNT
    assert sum(outcome.seconds for outcome in outcomes) >= 0.1 * COUNT
    assert_no_complaint(throttled.log)


@pytest.mark.parametrize("version", core_at(VERSIONS, core=("4.4.0",)))
def test_librdkafka_reports_request_time_throttles_in_its_statistics(throttled: Weir, topic: str) -> None:
    statistics: list[dict[str, Any]] = []
    options = ONE_AT_A_TIME | {
        "statistics.interval.ms": 100,
        "stats_cb": lambda text: statistics.append(json.loads(text)),
    }
    messages = some_messages(COUNT, 100)
    produced = Librdkafka().produce(throttled.bootstrap, topic, messages, partition=0, config=options)
    most_ms = max(broker["throttle"]["max"] for each in statistics for broker in each["brokers"].values())
    assert 0 < most_ms <= MOST_MS
    assert produced.throttle_max_ms == pytest.approx(most_ms)
    assert_no_complaint(throttled.log)


@pytest.mark.parametrize("version", VERSIONS)
def test_kafka_python_reports_request_time_throttles_in_its_metrics(throttled: Weir, topic: str) -> None:
    messages = some_messages(COUNT, 100)
    one_by_one = {"max_in_flight_requests_per_connection": 1, "batch_size": 0}
    produced = KafkaPython().produce(throttled.bootstrap, topic, messages, partition=0, config=one_by_one)
    assert 0 < produced.throttle_max_ms <= MOST_MS
    assert_no_complaint(throttled.log)


@pytest.mark.parametrize("version", VERSIONS[:1])
def test_a_throttled_clients_unsupported_apiversions_is_answered_in_version_0(throttled: Weir) -> None:
    """It does so in version 0, which has no throttle time."""
    request = frames.request(ApiVersionsRequest(), 3, client_id=b"new")
    with Connection(("127.0.0.1", throttled.port)) as connection:
        for _ in range(COUNT):
            answer = frames.body_of(connection.exchange(request), ApiVersionsResponse, 0)
            assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert_no_complaint(throttled.log)
