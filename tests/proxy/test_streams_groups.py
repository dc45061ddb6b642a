"""Internal topics that a broker creates for streams groups (KIP-1071), under a mutation quota."""

from __future__ import annotations

from typing import Final

import pytest

from tests.kfake.streams import SOURCE, StreamsBroker
from tests.proxy.mutation_cluster import BURST, Cluster
from tests.wire.frames import body_of, request
from weir.protocol.messages import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from weir.proxy.handlers.mutations.pending_creations import PENDING_MS
from weir.quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable
from weir.quotas.client_quotas import mutation_rates

LOADING: Final = 14

Info = StreamsGroupHeartbeatRequest.TopicInfo


class Coordinator(Cluster):
    def __init__(self, *, quota: QuotaKey = QuotaKey.CONTROLLER_MUTATION_RATE) -> None:
        self.broker = StreamsBroker()
        self.broker.add(SOURCE, 4)
        table = QuotaTable({(Entity(client_id="app"), quota): 1.0})
        super().__init__(controller=self.broker, table=table)

    def beat(
        self, now_ms: int, group: str, *topics: Info, epoch: int = 0, join: bool = True
    ) -> StreamsGroupHeartbeatResponse:
        """A heartbeat of a member that joins with this topology, or goes on without one."""
        return body_of(
            self.connect().send(now_ms, request(beat(group, *topics, epoch=epoch, join=join), 0))[0],
            StreamsGroupHeartbeatResponse,
            0,
        )


def beat(group: str, *topics: Info, epoch: int = 0, join: bool = True) -> StreamsGroupHeartbeatRequest:
    """A heartbeat; topics that say their partitions are repartition topics, the others changelogs."""
    subtopology = StreamsGroupHeartbeatRequest.Subtopology(
        subtopology_id="0",
        source_topics=[SOURCE],
        state_changelog_topics=[topic for topic in topics if not topic.partitions],
        repartition_source_topics=[topic for topic in topics if topic.partitions],
    )
    topology = StreamsGroupHeartbeatRequest.Topology(epoch=0, subtopologies=[subtopology])
    return StreamsGroupHeartbeatRequest(
        group_id=group, member_id="m", member_epoch=epoch, topology=topology if join else None
    )


def repartition(name: str, partitions: int) -> Info:
    return Info(name=name, partitions=partitions)


def changelog(name: str) -> Info:
    return Info(name=name)


def test_a_streams_groups_repartition_topic_is_charged_its_partitions() -> None:
    cluster = Coordinator()
    cluster.beat(0, "g", repartition("r", 7))
    assert cluster.tokens == BURST - 7
    cluster.beat(0, "g", repartition("r", 7))
    cluster.beat(0, "g", join=False, epoch=1)
    assert cluster.tokens == BURST - 7, "charged once"


def test_a_streams_groups_changelog_topic_is_charged_in_full_once_it_is_there() -> None:
    cluster = Coordinator()
    cluster.beat(0, "g", changelog("c"))
    assert cluster.tokens == BURST - 1
    cluster.beat(0, "g", join=False, epoch=1)
    assert cluster.tokens == BURST - 4


def test_a_topology_whose_source_topics_are_missing_is_free_until_they_are_there() -> None:
    cluster = Coordinator()
    del cluster.broker.topics[SOURCE]
    cluster.beat(0, "g", repartition("r", 7))
    assert cluster.tokens == BURST
    cluster.broker.add(SOURCE, 1)
    cluster.beat(0, "g", join=False, epoch=1)
    assert cluster.broker.sizes()["r"] == 7
    assert cluster.tokens == BURST - 7


@pytest.mark.parametrize("detail", ["Internal topics are missing: [{}]", "Internal topics are missing: {}"])
def test_missing_internal_topics_are_read_from_the_status_as_each_release_writes_it(detail: str) -> None:
    cluster = Coordinator()
    del cluster.broker.topics[SOURCE]
    cluster.broker.detail = detail
    cluster.broker.add("old", 5)
    cluster.beat(0, "g", repartition("r", 3), repartition("r2", 3), repartition("old", 5))
    cluster.broker.add(SOURCE, 1)
    cluster.beat(0, "g", join=False, epoch=1)
    assert cluster.tokens == BURST - 6


def test_a_client_over_its_quota_creates_no_further_internal_topics() -> None:
    """600 partitions in 6 s came of this under a quota of 0.5 partitions/s."""
    cluster = Coordinator()
    told = cluster.beat(0, "g0", repartition("r0", 100))
    assert (told.error_code, told.throttle_time_ms) == (0, 90_000)
    for number in range(1, 6):
        told = cluster.beat(1000 * number, f"g{number}", repartition(f"r{number}", 100))
        assert (told.error_code, told.member_id) == (LOADING, "m")
        assert told.throttle_time_ms == 90_000 - 1000 * number
    assert cluster.broker.sizes() == {SOURCE: 4, "r0": 100}
    assert cluster.beat(90_000, "g1", repartition("r1", 100)).error_code == 0


def test_members_of_a_client_over_its_quota_stay_alive_and_leave() -> None:
    cluster = Coordinator()
    cluster.beat(0, "g", repartition("r", 100))
    assert cluster.tokens == BURST - 100
    assert cluster.beat(1000, "g", repartition("r", 100)).error_code == 0
    assert cluster.beat(1000, "g", join=False, epoch=1).error_code == 0
    assert cluster.beat(1000, "g", join=False, epoch=-1).error_code == 0


def test_internal_topics_of_a_group_that_cannot_be_described_are_those_of_the_request() -> None:
    cluster = Coordinator()
    cluster.broker.describes = False
    cluster.beat(0, "g", repartition("r", 7))
    assert cluster.tokens == BURST - 7


def test_internal_topics_that_do_not_come_are_charged_once_in_the_time_they_may_take() -> None:
    cluster = Coordinator()
    cluster.broker.creates = False
    for now_ms in (0, 5000, 10_000):
        cluster.beat(now_ms, "g", repartition("r", 20))
        cluster.beat(now_ms, "g", join=False, epoch=1)
        assert cluster.tokens == BURST - 20 + now_ms / 1000
    assert PENDING_MS > 10_000


def test_parallel_members_pay_for_a_topic_once() -> None:
    cluster = Coordinator()
    cluster.broker.creates = False
    cluster.beat(0, "g", repartition("r", 7))
    cluster.beat(0, "g", repartition("r", 7))
    cluster.broker.creates = True
    cluster.beat(0, "g", repartition("r", 7))
    cluster.beat(0, "g", join=False, epoch=1)
    assert cluster.tokens == BURST - 7


def test_a_shadow_quota_charges_internal_topics_and_refuses_none() -> None:
    cluster = Coordinator()
    key = (Entity(client_id="app"), QuotaKey.CONTROLLER_MUTATION_RATE)
    shadow = QuotaTable({}, shadow={key: 1.0})
    cluster.quotas = BrokerQuotas.create(shadow, mutations=mutation_rates(BURST, 1))
    for number in range(3):
        told = cluster.beat(0, f"g{number}", repartition(f"r{number}", 7))
        assert (told.error_code, told.throttle_time_ms) == (0, 0)
    ledger = cluster.quotas.mutation_ledger("ANONYMOUS", "app", 0)
    assert ledger is not None
    assert ledger.enforced is None
    assert ledger.shadow is not None
    assert ledger.shadow.tokens(0) == BURST - 14
