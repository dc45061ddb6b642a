"""Which requests are charged with their time: every API, as Kafka's brokers class them (KafkaApis)."""

from __future__ import annotations

from typing import Final

import pytest

from tests.matrix import in_one_test
from tests.proxy.broker_versions import broker_of
from tests.proxy.request_costs import costs
from weir.protocol import schema
from weir.protocol.api import ApiKey
from weir.protocol.versions import VersionRange
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.request_time.request_time import CLASSES, Charged, generation
from weir.quotas.costs.request_costs import GENERATIONS, ApiCost, CostTable, shipped

K = ApiKey
ANSWERED_BY_THE_NETWORK_LAYER: Final = {K.SASL_HANDSHAKE, K.SASL_AUTHENTICATE}
BETWEEN_BROKERS: Final = {
    K.LEADER_AND_ISR,
    K.STOP_REPLICA,
    K.UPDATE_METADATA,
    K.CONTROLLED_SHUTDOWN,
    K.ALTER_PARTITION,
    K.WRITE_TXN_MARKERS,
}
"""Exempt on brokers, if they are authorized."""
ON_CONTROLLERS: Final = {
    K.FETCH_SNAPSHOT,
    K.VOTE,
    K.BEGIN_QUORUM_EPOCH,
    K.END_QUORUM_EPOCH,
    K.DESCRIBE_QUORUM,
    K.ADD_RAFT_VOTER,
    K.REMOVE_RAFT_VOTER,
    K.UPDATE_RAFT_VOTER,
}
"""Exempt on controllers' listeners, if they are authorized. So are Fetch and AlterPartition."""


def test_apis_exempt_from_request_time_are_those_that_brokers_exempt() -> None:
    assert {
        key for key, kind in CLASSES.items() if kind is Charged.IF_REFUSED
    } == ANSWERED_BY_THE_NETWORK_LAYER
    among_brokers = {key for key, kind in CLASSES.items() if kind is Charged.UNLESS_A_BROKER}
    assert among_brokers == BETWEEN_BROKERS | ON_CONTROLLERS


@in_one_test
@pytest.mark.parametrize("key", list(CLASSES), ids=lambda key: key.name)
def test_measured_apis_have_specific_costs_in_each_generations_table(key: ApiKey) -> None:
    """In the table of each generation whose brokers had the API; what is a guess has none. A table that is
    provisional says so.
    """
    found = schema.api(key)
    assert found is not None
    measured = [release for release in GENERATIONS if not shipped(release).source.startswith("provisional")]
    tables = {release for release in measured if found.name in shipped(release).apis}
    if CLASSES[key] is Charged.MEASURED:
        spoken = {release for release in measured if key in SPOKEN[release]}
        assert tables == spoken - NOT_MEASURED.get(key, set())
    else:
        assert not tables


NOT_MEASURED: Final = {
    K.OFFSET_FOR_LEADER_EPOCH: {"1.1"},  # a cluster action there
    K.CONSUMER_GROUP_HEARTBEAT: {"3.9"},  # of a protocol that is switched off there
}
SPOKEN: Final[dict[str, set[int]]] = {
    "1.1": set(range(43)),
    "2.8": {*range(52), 56, 57, 60, 61},
    "3.9": {*range(52), *range(55, 58), *range(60, 62), *range(64, 70), *range(71, 73), 74, 75, 80, 81},
    "4.2": {int(key) for key in CLASSES} - {4, 5, 6, 7},
}
"""The API keys that brokers of these releases have, on listeners of clients (ApiVersions). Share groups,
76 to 79, are not stable in 3.9.
"""


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        ((0, 10, 0), "1.1"),
        ((0, 10, 2), "1.1"),
        ((0, 11), "1.1"),
        ((1, 0), "1.1"),
        ((1, 1), "1.1"),
        ((2, 0), "2.8"),
        ((2, 3), "2.8"),
        ((2, 8), "2.8"),
        ((3, 0), "2.8"),
        ((3, 9), "3.9"),
        ((4, 0), "4.2"),
    ],
    ids=lambda value: value if isinstance(value, str) else ".".join(map(str, value)),
)
def test_a_brokers_generation_is_inferred_from_its_api_versions(
    release: tuple[int, ...], expected: str
) -> None:
    """3.0 speaks as 2.8 does, but for what it says itself."""
    assert generation(broker_of(release)) == expected


@pytest.mark.parametrize("broker", [None, {}, {3: VersionRange(0, 9)}], ids=["unsaid", "nothing", "odd"])
def test_a_broker_with_unknown_versions_is_charged_as_generation_3_9(
    broker: dict[int, VersionRange] | None,
) -> None:
    assert generation(broker) == "3.9"


def test_configured_costs_precede_those_of_the_brokers_generation() -> None:
    own = ApiCost(us=7.5)
    plans = Plans(Counters(), costs=costs({"Heartbeat": own})).for_broker(broker_of((1, 1)))
    cost = plans.make(K.HEARTBEAT, 1).cost
    assert cost is not None
    assert cost.api == own
    table: CostTable = shipped("1.1")
    cost = Plans(Counters()).for_broker(broker_of((1, 1))).make(K.METADATA, 5).cost
    assert cost is not None
    assert cost.api == table.of("Metadata")
    assert cost.us_per_response_byte == table.of("Metadata").us_per_response_kb / 1000


@pytest.mark.parametrize(
    ("broker", "exempt"),
    [((0, 11), True), ((1, 1), True), ((2, 0), True), ((2, 1), False), ((2, 8), False), ((3, 9), False)],
    ids=lambda value: ".".join(map(str, value)) if isinstance(value, tuple) else str(value),
)
def test_offsetforleaderepoch_is_exempt_among_old_brokers_only(broker: tuple[int, ...], exempt: bool) -> None:
    """OffsetForLeaderEpoch was a cluster action up to 2.0; since then consumers ask too."""
    plan = Plans(Counters()).for_broker(broker_of(broker)).make(K.OFFSET_FOR_LEADER_EPOCH, 0)
    assert plan.between_brokers is exempt


def test_without_apiversions_requests_cost_as_at_the_last_known_broker() -> None:
    plans = Plans(Counters())
    metadata = plans.make(K.METADATA, 1)
    before = metadata.cost
    plans.for_broker(broker_of((1, 1)))
    assert metadata.cost is not None
    assert metadata.cost.api == shipped("1.1").of("Metadata") != (before and before.api)
    made_later = plans.make(K.OFFSET_COMMIT, 2)
    assert made_later.cost is not None
    assert made_later.cost.api == shipped("1.1").of("OffsetCommit")
    of_that_broker = plans.for_broker(broker_of((1, 1)))
    of_that_broker.for_broker(broker_of((4, 0)))  # an upgrade is under way, its clients learn of it
    assert metadata.cost.api == shipped("4.2").of("Metadata")
    of_old = of_that_broker.make(K.METADATA, 1).cost
    assert of_old is not None
    assert of_old.api == shipped("1.1").of("Metadata")
