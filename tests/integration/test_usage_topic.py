"""Usage records in a topic of real clusters: each once, a client's in order, also over a broker's restart."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.integration.topic_contents import PATIENCE_S, Stored, records_in
from tests.integration.traffic import until
from tests.kafka.fixtures import StartCluster
from tests.kafka.releases import core_at
from tests.proxy.usage_rigs import trace_record, usage_record
from weir.proxy.config.config import load
from weir.proxy.control.usage.start import recording
from weir.proxy.control.usage.tally import Kind, Loss
from weir.proxy.control.usage.topic import PARTITIONS
from weir.proxy.control.usage.writer import Writer
from weir.usage import UsageRecord

pytestmark = [pytest.mark.broker]

RECORDS, CLIENTS = 2000, 20


def writer_of(bootstrap: str, topic: str) -> Writer:
    settings = {"upstream": bootstrap, "usage": f"topic:{topic}", "usage_trace_share": 1.0}
    found = recording(load(None, settings))
    assert found is not None
    return found.writer


def wait(writer: Writer, is_so: Callable[[], bool]) -> None:
    until(is_so, lambda: f"the writer, which has {vars(writer.tally)}")


def records(begin: int) -> list[UsageRecord]:
    return [
        usage_record(number, client_id=f"app-{number % CLIENTS}") for number in range(begin, begin + RECORDS)
    ]


def check(found: dict[int, list[Stored]], sent: list[UsageRecord]) -> None:
    """Each once; those of a client in one partition, in order."""
    assert len(found) == PARTITIONS
    by_client: dict[str, list[int]] = {}
    partitions: dict[str, set[int]] = {}
    for partition, stored in found.items():
        for each in stored:
            record = msgspec.json.decode(each.value, type=UsageRecord)
            by_client.setdefault(record.client_id, []).append(record.requests)
            partitions.setdefault(record.client_id, set()).add(partition)
    expected: dict[str, list[int]] = {}
    for record in sent:
        expected.setdefault(record.client_id, []).append(record.requests)
    assert by_client == expected
    assert {len(where) for where in partitions.values()} == {1}
    assert len(set.union(*partitions.values())) > 1


@pytest.mark.parametrize("release", core_at(["0.10.2.2", "3.9.1"], core=("3.9.1",)))
def test_the_usage_topic_has_every_record_once_and_each_clients_in_order(
    release: str, kafka_cluster: StartCluster, topic: str
) -> None:
    bootstrap = kafka_cluster(release).bootstrap
    writer = writer_of(bootstrap, topic)
    writer.put(Kind.USAGE, records(0))
    writer.put(Kind.TRACE, [trace_record(7)])
    writer.start()
    wait(writer, lambda: writer.tally.written[Kind.TRACE] == 1)
    writer.close(PATIENCE_S)
    assert writer.tally.dropped == dict.fromkeys(Loss, 0)
    assert writer.tally.written == {Kind.USAGE: RECORDS, Kind.TRACE: 1, Kind.EVENT: 0}
    check(records_in(bootstrap, topic), records(0))
    (trace,) = (each for stored in records_in(bootstrap, f"{topic}-trace").values() for each in stored)
    assert msgspec.json.decode(trace.value)["bytes_in"] == 7


def test_no_usage_record_is_lost_while_a_broker_is_unavailable(
    fresh_cluster: StartCluster, topic: str
) -> None:
    cluster = fresh_cluster("3.9.1")
    writer = writer_of(cluster.bootstrap, topic)
    writer.start()
    writer.put(Kind.USAGE, records(0))
    wait(writer, lambda: writer.tally.written[Kind.USAGE] == RECORDS)
    cluster.kill(0)
    writer.put(Kind.USAGE, records(RECORDS))
    wait(writer, lambda: writer.tally.failure != "")
    cluster.restart(0)
    wait(writer, lambda: writer.tally.written[Kind.USAGE] == 2 * RECORDS)
    assert writer.tally.failure == ""
    writer.close(PATIENCE_S)
    assert writer.tally.dropped == dict.fromkeys(Loss, 0)
    check(records_in(cluster.bootstrap, topic), records(0) + records(RECORDS))
