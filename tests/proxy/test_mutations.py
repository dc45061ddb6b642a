"""Partition mutations under a quota: what each topic costs, who is refused, what reaches the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

import pytest

from protocol.api import ApiKey
from protocol.messages import (
    ApiVersionsRequest,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeConfigsRequest,
    MetadataRequest,
)
from protocol.versions import VersionRange
from proxy.counters import Counters
from proxy.plans import Plans
from proxy.quota_book import QuotaBook
from proxy.reasons import CloseReason
from quotas import BrokerQuotas, Entity, QuotaKey, QuotaTable
from quotas.budgets import mutation_rates
from tests.mutations.requests import Answer, Create, Delete, Grow, Topic
from tests.proxy.controller import (
    ASSIGNMENT,
    CONFIG,
    EXISTS,
    INVALID_REQUEST,
    INVALID_TOPIC,
    NODE,
    NOT_CONTROLLER,
    OK,
    PARTITIONS,
    REPLICATION_FACTOR,
    THROTTLED,
    UNKNOWN_TOPIC,
    UNKNOWN_TOPIC_ID,
    Connection,
    Controller,
    everything,
    names_of,
)
from tests.proxy.frames import body_of, request, request_body_of, split
from tests.proxy.wire import Wire, new_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.messages import Message
    from tests.mutations.requests import Mutation

RATE: Final = 1.0
BURST: Final = 10
"""Tokens of a bucket that is full: rate x samples x window."""
STRICT: Final = {Create: 7, Grow: 3, Delete: 6}


def limited(rate: float | None = RATE, client_id: str = "app") -> QuotaTable:
    """A mutation quota of one client-id, in partitions/s; None for none."""
    entity = Entity(client_id=client_id)
    return QuotaTable({} if rate is None else {(entity, QuotaKey.CONTROLLER_MUTATION_RATE): rate})


def quotas_of(table: QuotaTable, samples: int = BURST) -> BrokerQuotas:
    """The quotas of a cluster of one broker, windows of one second."""
    mutations = mutation_rates(samples, 1)
    return BrokerQuotas.create(table, mutations=mutations)


class Cluster:
    """A controller, Weir in front of it, and clients; each request on a connection of its own."""

    def __init__(
        self,
        spoken: Mapping[int, VersionRange] | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
        table: QuotaTable | None = None,
        samples: int = BURST,
        uplift: bool = False,
    ) -> None:
        self.controller = Controller(everything() if spoken is None else spoken)
        for name, partitions in (sizes or {}).items():
            self.controller.add(name, partitions)
        self.quotas = quotas_of(limited() if table is None else table, samples)
        self.plans = Plans(Counters(), uplift=uplift)

    def connect(self, node_id: int | None = NODE) -> Connection:
        """A new connection."""
        return Connection(new_session(quotas=self.quotas, plans=self.plans, node_id=node_id), self.controller)

    def ask(self, now_ms: int, mutation: Mutation, client_id: str = "app") -> Answer:
        """One request on a connection of its own."""
        (frame,) = self.connect().send(now_ms, mutation.frame(client_id))
        return mutation.answer(frame)

    def codes(self, now_ms: int, mutation: Mutation) -> dict[str, int]:
        """What became of each topic, by name."""
        return {result.name or "": result.error_code for result in self.ask(now_ms, mutation).results}

    @property
    def tokens(self) -> float:
        """The balance of the client "app", at the last request's time."""
        budget = self.quotas.mutations.budget("ANONYMOUS", "app", 0)
        assert budget is not None
        return budget.tokens(self.controller.now_ms)

    def overdraw(self, now_ms: int = 0, by: int = 5) -> None:
        """Take all tokens of a full bucket and some more."""
        assert self.codes(now_ms, Create((Topic("overdrawn", BURST + by),))) == {"overdrawn": OK}
        assert self.tokens == -by
        self.controller.asked.clear()

    def mutations(self) -> list[Message]:
        """The mutations that have reached the broker."""
        kinds = (CreateTopicsRequest, CreatePartitionsRequest, DeleteTopicsRequest)
        return [message for message, _version in self.controller.asked if isinstance(message, kinds)]


# Escapes: what is charged in full, whatever a client tries


def test_topics_named_beside_ids_cost_what_they_have() -> None:
    """A broker that is asked for ids does not look at the names beside them (3.9.1)."""
    cluster = Cluster(sizes={"named": 4, "by id": 2})
    topic_id = cluster.controller.topics["by id"].topic_id
    assert cluster.ask(0, Delete(("named", topic_id))).error_codes == (OK, OK)
    assert cluster.tokens == BURST - 6


def test_topics_named_beside_ids_are_refused_when_there_are_no_tokens() -> None:
    cluster = Cluster(sizes={"named": 4, "by id": 2})
    cluster.overdraw()
    topic_id = cluster.controller.topics["by id"].topic_id
    assert cluster.ask(0, Delete(("named", topic_id))).error_codes == (THROTTLED, THROTTLED)
    assert cluster.controller.sizes() == {"named": 4, "by id": 2, "overdrawn": 15}


def test_an_entry_with_neither_name_nor_id_hides_no_others() -> None:
    """A broker that is asked for a topic with neither answers for none (3.9.1: -1 for all)."""
    cluster = Cluster(sizes={"named": 4})
    neither = UUID(int=0)
    codes = [one.error_code for one in cluster.ask(0, Delete(("named", neither))).results]
    assert codes == [OK, INVALID_REQUEST]
    assert cluster.tokens == BURST - 4


@pytest.mark.parametrize("zookeeper", [False, True])
@pytest.mark.parametrize("version", [0, 4, 5, 6])
@pytest.mark.parametrize("overdrawn", [False, True])
def test_a_topic_named_twice_is_told_so_and_costs_nothing(
    version: int, *, zookeeper: bool, overdrawn: bool
) -> None:
    """Controllers before KRaft would delete it; KRaft's say INVALID_REQUEST whatever the balance."""
    cluster = Cluster(sizes={"twice": 7, "once": 1})
    cluster.controller.zookeeper = zookeeper
    if overdrawn:
        cluster.overdraw()
    told = cluster.ask(0, Delete(("twice", "once", "twice"), version))
    once = THROTTLED if overdrawn and version >= 5 else OK
    assert [(one.name, one.error_code) for one in told.results] == [
        ("twice", INVALID_REQUEST),
        ("once", once),
    ]
    assert "twice" in cluster.controller.topics


@pytest.mark.parametrize("other", ["right", "another"])
def test_an_entry_with_name_and_id_gets_nothing_deleted_and_takes_no_others_place(other: str) -> None:
    """Its answer could be mistaken for another entry's, which would then be given back its tokens."""
    cluster = Cluster(sizes={"big": 7, "small": 1})
    ids = {name: topic.topic_id for name, topic in cluster.controller.topics.items()}
    state = DeleteTopicsRequest.DeleteTopicState
    both = (
        state(name="small", topic_id=ids["big"])
        if other == "right"
        else state(name="big", topic_id=UUID(int=5))
    )
    whole = DeleteTopicsRequest(topics=[both, state(name=None, topic_id=ids["big"])])
    (frame,) = cluster.connect().send(0, request(whole, 6))
    told = body_of(frame, DeleteTopicsResponse, 6).responses
    assert [one.error_code for one in told] == [INVALID_REQUEST, OK]
    assert cluster.controller.sizes() == {"small": 1}
    assert cluster.tokens == BURST - 7


def test_partitions_added_to_a_topic_that_metadata_does_not_show_yet_are_charged() -> None:
    """A broker's metadata lags behind its controller."""
    cluster = Cluster(sizes={"young": 1})
    cluster.controller.lag = {"young"}
    assert cluster.codes(0, Grow((("young", 8),))) == {"young": OK}
    assert cluster.tokens == BURST - 7
