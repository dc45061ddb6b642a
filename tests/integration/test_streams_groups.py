"""Internal topics of streams groups under a mutation quota, at a real broker (KIP-1071)."""

from __future__ import annotations

import time
from typing import Final
from uuid import uuid4

import pytest

from tests.integration.conftest import StartWeir
from tests.integration.coordinators import await_coordinator
from tests.integration.mutable import await_partitions, controller, mutable, partitions_at, quota
from tests.integration.topic_creation import FIVE, NEVER, OK, create
from tests.integration.weir_log import assert_no_complaint
from tests.kafka.fixtures import StartCluster
from tests.raw import Address, ask
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse

pytestmark = [pytest.mark.broker]

_TIMEOUT_S: Final = 30.0
_POLL_S: Final = 0.1
LOADING: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def join(address: Address, group: str, source: str, sink: str, partitions: int) -> tuple[int, int]:
    """A member joins whose topology has one repartition topic; the error code, and the throttle time (ms)."""
    message = StreamsGroupHeartbeatRequest
    subtopology = message.Subtopology(
        subtopology_id="0",
        source_topics=[source],
        repartition_source_topics=[message.TopicInfo(name=sink, partitions=partitions)],
    )
    request = message(
        group_id=group,
        member_id=str(uuid4()),
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        topology=message.Topology(epoch=0, subtopologies=[subtopology]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
        client_tags=[],
    )
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        told = ask(address, request, StreamsGroupHeartbeatResponse, 0)
        if told.error_code not in {ErrorCode.NOT_COORDINATOR, LOADING} or told.throttle_time_ms:
            return told.error_code, told.throttle_time_ms
        assert time.monotonic() < deadline
        time.sleep(_POLL_S)


def test_a_client_over_its_quota_creates_no_internal_topics_of_streams_groups(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster = mutable(kafka_cluster, "4.4.0")
    weir = start_weir(cluster.bootstrap, quota(NEVER), options=FIVE)
    address = controller(weir, cluster)
    assert create(address, topic, 1, client_id="another") == OK
    await_partitions(cluster, {topic: 1})
    await_coordinator(address, f"{topic}-g0")
    code, throttle_ms = join(address, f"{topic}-g0", topic, f"{topic}-r0", 8)
    assert code == ErrorCode.NONE
    assert throttle_ms == pytest.approx(3_000_000, abs=30_000), "8 of 5, at 0.001/s"
    await_partitions(cluster, {f"{topic}-r0": 8})
    for number in range(1, 4):
        code, throttle_ms = join(address, f"{topic}-g{number}", topic, f"{topic}-r{number}", 8)
        assert (code, throttle_ms > 2_900_000) == (LOADING, True)
    assert join(address, f"{topic}-g9", topic, f"{topic}-r0", 8)[0] == ErrorCode.NONE, "nothing is missing"
    ours = {name for name in partitions_at(address) if name.startswith(f"{topic}-r")}
    assert ours == {f"{topic}-r0"}
    assert_no_complaint(weir.log)
