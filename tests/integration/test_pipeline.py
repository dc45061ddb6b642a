"""From clients' sockets to the pipeline's tables: what the wire was seen to carry is what they add up to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.clients import KafkaPython, Librdkafka, create_topic, sasl
from tests.clients.admin import Step
from tests.clients.exchange import some_messages
from tests.clients.librdkafka_admin import LibrdkafkaAdmin
from tests.clients.sasl import Login
from tests.integration.conftest import StartWeir
from tests.integration.pipeline_jobs import outcomes, rows
from tests.integration.tap import HOST, Tap
from tests.integration.wire_totals import Totals, totals
from tests.java.records import Exchange, JavaRecords
from tests.kafka.fixtures import StartCluster
from tests.kafka.sasl import ALICE, BOB, PLAIN, SCRAM_256, WEIR

pytestmark = [pytest.mark.broker, pytest.mark.spark]

RELEASE = "3.9.1"
SLOW_RATE = 100_000
QUOTAS = f"""
[[quota]]
client_id = "slow"
producer_byte_rate = {SLOW_RATE}
"""


def with_usage(topic: str) -> tuple[str, ...]:
    return (
        "--set",
        f"advertised_host={HOST}",
        "--set",
        f"usage=topic:{topic}",
        "--set",
        "usage_trace_share=1",
    )


def plain_clients(bootstrap: str, topic: str) -> None:
    some = some_messages(50, 1000)
    create_topic(bootstrap, topic, partitions=2)
    LibrdkafkaAdmin(bootstrap, "admin").run(
        Step("create", {f"{topic}-made": 3}), Step("create", {topic: 2}), Step("delete", {f"{topic}-made": 0})
    )
    for client in (Librdkafka(), KafkaPython()):
        client.produce(bootstrap, topic, some, client_id=f"{client.name}-producer")
        client.produce(bootstrap, topic, some, acks=0, client_id=f"{client.name}-unanswered")
        client.consume(
            bootstrap, topic, 100, group=f"{topic}-{client.name}", client_id=f"{client.name}-group"
        )
    produced = Librdkafka().produce(bootstrap, topic, some_messages(130, 10_000), client_id="slow")
    assert produced.throttle_max_ms > 0
    exchange = Exchange(f"{topic}-java", some, {"client.id": "java"})
    create_topic(bootstrap, exchange.topic)
    assert JavaRecords(RELEASE, bootstrap).run(exchange) == [list(some)]


def users(bootstrap: str, topic: str) -> None:
    some = some_messages(50, 1000)
    alice = sasl.librdkafka(Login(SCRAM_256, ALICE))
    Librdkafka().produce(bootstrap, topic, some, client_id="of-alice", config=alice)
    Librdkafka().consume(bootstrap, topic, 50, client_id="of-alice", config=alice)
    bob = sasl.python(Login(PLAIN, BOB))
    KafkaPython().produce(bootstrap, topic, some, client_id="of-bob", config=bob)


def test_totals_of_the_pipelines_tables_equal_those_of_the_wire(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, tmp_path: Path
) -> None:
    cluster = kafka_cluster(RELEASE)
    usage_topic = f"{topic}-usage"
    weirs = [
        start_weir(cluster.bootstrap, QUOTAS, options=with_usage(usage_topic)),
        start_weir(cluster.sasl_bootstrap, options=(*with_usage(usage_topic), *login(tmp_path))),
    ]
    with Tap(port for weir in weirs for port in range(weir.port, weir.port + 2)) as tap:
        plain_clients(f"{HOST}:{weirs[0].port}", topic)
        users(f"{HOST}:{weirs[1].port}", topic)
        assert [weir.stop() for weir in weirs] == [0, 0]
    on_the_wire = totals(tap.conversations)
    assert on_the_wire.keys() >= {"slow", "admin", "java", "of-alice", "of-bob", "librdkafka-unanswered"}
    directory = tmp_path / "pipeline"
    directory.mkdir()
    lake = directory / "lake"
    source = ("--topic", usage_topic, "--bootstrap-servers", cluster.bootstrap)
    options = ("--lake", str(lake), "--master", "local[2]", "--json")
    # VACUUM prints a line to Java's standard output, and Spark would make a warehouse in the directory
    ingested, _ = outcomes(directory, "ingest", *options, *source, "--once", "then", "maintain")
    assert list(directory.iterdir()) == [lake]
    assert ingested["read"].keys() == {"usage lines", "trace lines"}
    assert ingested["wrote"].keys() == {"usage records", "trace records"}  # no malformed, none late
    assert summed(rows(lake, "usage")) == on_the_wire
    assert summed(rows(lake, "trace")) == on_the_wire
    check_response_times(rows(lake, "usage"), rows(lake, "trace"))


def summed(records: list[dict[str, Any]]) -> dict[str, Totals]:
    """By client-id; a trace is one request."""
    found: dict[str, Totals] = {}
    for record in records:
        before = found.get(record["client_id"], Totals(0, 0, 0))
        requests = (record["requests"] or 0) if "requests" in record else 1
        found[record["client_id"]] = Totals(
            before.requests + requests,
            before.bytes_in + (record["bytes_in"] or 0),
            before.bytes_out + (record["bytes_out"] or 0),
        )
    return found


def check_response_times(usage: list[dict[str, Any]], traces: list[dict[str, Any]]) -> None:
    """Compare the sums of response times with the times in the traces, which are whole milliseconds."""
    for api in ("produce", "fetch"):
        answered = [trace for trace in traces if trace["api"] == api and trace["answered_ms"]]
        traced_ms = sum(trace["answered_ms"] - trace["time_ms"] for trace in answered)
        summed_ms = sum(record["response_time_us"] or 0 for record in usage if record["api"] == api) / 1000
        assert traced_ms > 0, api
        assert abs(summed_ms - traced_ms) <= len(answered), (api, summed_ms, traced_ms)


def login(directory: Path) -> tuple[str, ...]:
    """Weir's own, for what it asks the brokers, and for its records."""
    password = directory / "password"
    password.write_text(WEIR.password)
    return (
        *("--set", f"upstream_sasl_mechanism={SCRAM_256}", "--set", f"upstream_sasl_username={WEIR.name}"),
        *("--set", f"upstream_sasl_password_file={password}"),
    )
