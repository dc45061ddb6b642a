"""Topics that come by being asked for, under a mutation quota: with ZooKeeper and KRaft (KIP-599)."""

from __future__ import annotations

from typing import Final

import pytest

from tests.integration.conftest import StartWeir
from tests.integration.mutable import (
    DEFAULT_PARTITIONS,
    await_partitions,
    controller,
    listener,
    mutable,
    partitions_at,
    quota,
)
from tests.integration.topic_creation import FIVE, NEVER, OK, REFUSED, create
from tests.integration.weir_log import assert_no_complaint
from tests.kafka.fixtures import StartCluster
from tests.kafka.releases import core_at
from tests.kafka.settings import HOST
from tests.kafka.waiting import eventually
from tests.raw import Address, ask
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import MetadataRequest, MetadataResponse

pytestmark = [pytest.mark.broker]

ASKER: Final = "asker"
"""The client-id of `ask`."""
METADATA: Final = {"0.10.2.2": 3, "2.8.2": 9, "3.9.1": 12}
"""What clients of the release ask in; 3 is uplifted."""
STRICT: Final = ("--set", "auto_creation=strict")
PATIENCE_S: Final = 30.0


def metadata(address: Address, version: int, *names: str) -> MetadataResponse:
    """Ask for topics, as clients that produce do: what is missing may be created."""
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=True)
    return ask(address, request, MetadataResponse, version)


@pytest.mark.parametrize("version", core_at(METADATA, core=("0.10.2.2",)))
def test_clients_that_request_missing_topics_are_charged_for_automatic_creation(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = mutable(kafka_cluster, version)
    weir = start_weir(cluster.bootstrap, quota(NEVER), options=FIVE)
    address = controller(weir, cluster)
    partitions = 1 if version == "0.10.2.2" else DEFAULT_PARTITIONS
    names = [f"{topic}-{number}" for number in range(6 // partitions)]
    first = metadata(address, METADATA[version], *names)
    assert {found.error_code for found in first.topics} != {ErrorCode.NONE}
    assert first.throttle_time_ms == 0
    await_partitions(cluster, dict.fromkeys(names, partitions))
    again = metadata(address, METADATA[version], *names)
    assert {found.error_code for found in again.topics} == {ErrorCode.NONE}
    assert again.throttle_time_ms == pytest.approx(1_000_000, abs=30_000), "6 of 5, at 0.001/s"
    assert create(address, f"{topic}-6", 1, client_id=ASKER) == REFUSED
    assert create(address, f"{topic}-7", 1, client_id="another") == OK
    assert_no_complaint(weir.log)


@pytest.mark.parametrize("version", ["2.8.2", "3.9.1"])
def test_strict_auto_creation_creates_no_topic_for_a_client_over_its_quota(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    """Until it has tokens again: here it is given a quota that refills at once."""
    cluster = mutable(kafka_cluster, version)
    weir = start_weir(cluster.bootstrap, quota(NEVER), options=(*FIVE, *STRICT))
    address, broker = listener(weir, 0), (HOST, cluster.ports[0])
    assert create(controller(weir, cluster), f"{topic}-large", 6, client_id=ASKER) == OK
    wanted, later = f"{topic}-wanted", f"{topic}-later"
    (missing,) = metadata(address, METADATA[version], wanted).topics
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    metadata(broker, METADATA[version], later)
    await_partitions(cluster, {later: DEFAULT_PARTITIONS})
    assert wanted not in partitions_at(broker), "what was asked for afterwards is there"
    weir.quota_file.write_text(quota(1000), "utf-8")
    assert eventually(
        lambda: not metadata(address, METADATA[version], wanted).topics[0].error_code, PATIENCE_S
    )
    await_partitions(cluster, {wanted: DEFAULT_PARTITIONS})
    assert_no_complaint(weir.log)
