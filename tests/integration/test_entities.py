"""Each level at which a quota can be set is enforced on the wire, and shared by whom it should be."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import pytest

from tests.clients import create_topic
from tests.integration.conftest import StartWeir
from tests.kafka.fixtures import StartCluster
from tests.kafka.releases import core_at
from tests.raw import (
    Address,
    Behaviour,
    BrokerVersions,
    Pace,
    RawClient,
    broker_versions_of,
    drive,
    fetch,
    fill,
    leaders,
    produce,
)
from tests.raw.rates import mean_rate

pytestmark = [pytest.mark.broker, pytest.mark.measured]

NAMED: Final = 100_000
"""bytes/s of those whom a quota names, at each broker."""
DEFAULT: Final = 160_000
"""bytes/s of those whom only a default means."""
UNLIMITED: Final = 1_000_000
"""bytes/s that a client without a quota asks for."""
PER_S: Final = 5
"""Requests per second at the quota."""
EVENLY_UNTIL_S, FROM_S, UNTIL_S = 11.0, 12.0, 26.0
TOLERANCE = 0.2
BROKERS = 3

OBEDIENT = Behaviour()
RUDE = Behaviour(obeys=False, depth=3)


class Row(NamedTuple):
    """One entry of a quota file: an entity in TOML, and its quota for producers and for consumers."""

    entity: str
    quota: int


class Budget(NamedTuple):
    """Who shares a budget, one client per client-id given, and its rate. Of two the first is obedient."""

    client_ids: tuple[str, ...]
    quota: int


@dataclass(frozen=True)
class Table:
    name: str
    rows: tuple[Row, ...]
    budgets: tuple[Budget, ...]

    @property
    def text(self) -> str:
        return "\n".join(
            f"[[quota]]\n{row.entity}\nproducer_byte_rate = {row.quota}\nconsumer_byte_rate = {row.quota}\n"
            for row in self.rows
        )


BY_CLIENT_ID = (Budget(("named", "named"), NAMED), Budget(("other",), DEFAULT), Budget(("another",), DEFAULT))
BY_USER = (Budget(("one", "another"), NAMED),)
TABLES = (
    Table(
        "client-id of a user",
        (
            Row('user = "ANONYMOUS"\nclient_id = "named"', NAMED),
            Row('user = "ANONYMOUS"\nclient_id = "<default>"', DEFAULT),
        ),
        BY_CLIENT_ID,
    ),
    Table("user", (Row('user = "ANONYMOUS"', NAMED), Row('user = "<default>"', DEFAULT)), BY_USER),
    Table(
        "client-id of the default user",
        (
            Row('user = "<default>"\nclient_id = "named"', NAMED),
            Row('user = "<default>"\nclient_id = "<default>"', DEFAULT),
        ),
        BY_CLIENT_ID,
    ),
    Table("default user", (Row('user = "<default>"', NAMED), Row('user = "SOMEBODY"', DEFAULT)), BY_USER),
    Table(
        "client-id",
        (Row('client_id = "named"', NAMED), Row('client_id = "<default>"', DEFAULT)),
        BY_CLIENT_ID,
    ),
)


@dataclass
class Group:
    """The clients that share one budget at one broker, and the rate they should have together."""

    name: str
    quota: int
    clients: list[RawClient] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """bytes/s over the steady part."""
        return sum(mean_rate(client.answers, FROM_S, UNTIL_S) for client in self.clients)

    @property
    def throttled(self) -> bool:
        return any(answer.throttle_ms > 0 for client in self.clients for answer in client.answers)


@pytest.mark.parametrize("version", core_at(["0.10.2.2", "4.4.0"], core=("4.4.0",)))
def test_every_quota_level_is_enforced_and_shared_by_its_clients(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = kafka_cluster(version, brokers=BROKERS)
    create_topic(cluster.bootstrap, topic, partitions=BROKERS)
    for partition in range(BROKERS):
        fill(cluster.bootstrap, topic, partition)
    groups: list[Group] = []
    for table in TABLES:
        weir = start_weir(cluster.bootstrap, table.text)
        brokers = leaders(("127.0.0.1", weir.port), topic)
        assert len(set(brokers.values())) == BROKERS
        groups += make_groups(table, Load(broker_versions_of(version), topic, brokers))
    free = list(make_unlimited(Load(broker_versions_of(version), topic, brokers)))
    drive([client for group in (*groups, *free) for client in group.clients], UNTIL_S)
    print("\n".join(f"{group.name}: {group.rate:.0f} of {group.quota}" for group in (*groups, *free)))
    wrong = {
        group.name: (group.quota, round(group.rate))
        for group in (*groups, *free)
        if abs(group.rate / group.quota - 1) > TOLERANCE
    }
    assert wrong == {}, "budget: bytes/s expected and seen"
    assert [group.name for group in groups if not group.throttled] == []
    assert [group.name for group in free if group.throttled] == []


class Load(NamedTuple):
    broker_versions: BrokerVersions
    topic: str
    brokers: dict[int, Address]
    """Each partition's leader, as a Weir tells it."""

    def client(
        self, kind: str, client_id: str, partition: int, rate: Pace, behaviour: Behaviour
    ) -> RawClient:
        build = produce if kind == "produce" else fetch
        request = build(self.broker_versions, client_id, self.topic, rate.request_bytes, partition)
        return RawClient(f"{kind} {client_id}", self.brokers[partition], request, behaviour, rate)


def make_groups(table: Table, load: Load) -> Iterator[Group]:
    """Producers and consumers of every budget of a table, at each broker where the client-id is `another`."""
    for kind in ("produce", "fetch"):
        for budget in table.budgets:
            for partition in range(BROKERS if "another" in budget.client_ids else 1):
                members = len(budget.client_ids)
                pace = Pace(budget.quota / members, EVENLY_UNTIL_S, budget.quota // PER_S)
                behaviours = [OBEDIENT, RUDE] if members > 1 else [RUDE]
                clients = [
                    load.client(kind, client_id, partition, pace, behaviour)
                    for client_id, behaviour in zip(budget.client_ids, behaviours, strict=True)
                ]
                name = f"{table.name}: {kind}, {' and '.join(budget.client_ids)}, broker of {partition}"
                yield Group(name, budget.quota, clients)


def make_unlimited(load: Load) -> Iterator[Group]:
    """A client without a client-id, whom no quota by client-id means: it gets all it asks for."""
    pace = Pace(UNLIMITED, UNTIL_S, UNLIMITED // PER_S)
    for kind in ("produce", "fetch"):
        yield Group(f"{kind} without client-id", UNLIMITED, [load.client(kind, "", 0, pace, OBEDIENT)])
