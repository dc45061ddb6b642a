"""kafka-configs, unmodified, and requests about client quotas: at Weir as at a broker
(docs/how-to/management.md).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import pytest

from tests.clients.sasl import Login, java
from tests.integration.conftest import StartWeir
from tests.integration.traffic import until
from tests.integration.weir import Weir
from tests.integration.with_sasl import Front
from tests.java.config_tool import ADMIN, Call, Transcript, add, delete, kafka_configs, same, show
from tests.kafka import Cluster
from tests.kafka.fixtures import StartCluster
from tests.kafka.sasl import ALICE, PLAIN, WEIR, User
from tests.proxy.client_quotas import alter, describe, entry
from tests.proxy.client_quotas_cases import BAD_ENTRIES, BAD_FILTERS, FILTERS
from tests.wire.connection import Connection
from tests.wire.frames import request
from weir.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    Message,
)
from weir.quotas import Entity, QuotaKey, QuotaTable, parse

M = TypeVar("M", bound="Message")

pytestmark = [pytest.mark.broker]

PRODUCE: Final = QuotaKey.PRODUCER_BYTE_RATE
PATIENCE_S: Final = 30.0


def users(name: str | None = None) -> Call:
    return ("--entity-type", "users", *_named(name))


def clients(name: str | None = None) -> Call:
    return ("--entity-type", "clients", *_named(name))


def ips(name: str | None = None) -> Call:
    return ("--entity-type", "ips", *_named(name))


def _named(name: str | None) -> Call:
    return () if name is None else ("--entity-name", name) if name else ("--entity-default",)


DEFAULT: Final = ""
BOTH: Final = "producer_byte_rate=1048576,consumer_byte_rate=2097152"
NAMES: Final = ("CN=alice,O=weir", "Zoë", 'a "quoted" \\ name', "x" * 300)
"""Of users; tools and stores treat them all as they are."""
LIFE: Final[tuple[Call, ...]] = (
    show(users()),
    add(users("alice"), BOTH),
    add(users("alice"), "producer_byte_rate=5,request_percentage=12.5,controller_mutation_rate=0.25"),
    show(users("alice")),
    add(users(DEFAULT), "consumer_byte_rate=7"),
    show(users(DEFAULT)),
    add((*users("alice"), *clients("app")), "producer_byte_rate=3,request_percentage=0.000001"),
    add((*users("alice"), *clients(DEFAULT)), "producer_byte_rate=4,request_percentage=200"),
    show((*users("alice"), *clients("app"))),
    add(clients("app"), "consumer_byte_rate=9"),
    add(clients(DEFAULT), "consumer_byte_rate=10"),
    show(clients()),
    add(ips("127.0.0.1"), "connection_creation_rate=1000"),
    add(ips(DEFAULT), "connection_creation_rate=2000"),
    show(ips()),
    *(add(users(name), "producer_byte_rate=12345") for name in NAMES),
    show(users()),
    *(delete(users(name), "producer_byte_rate") for name in NAMES),
    add(users("alice"), "producer_byte_rate=0"),
    delete(users("alice"), "request_percentage"),
    delete(users("alice"), "producer_byte_rate,consumer_byte_rate,controller_mutation_rate"),
    delete((*users("alice"), *clients("app")), "producer_byte_rate,request_percentage"),
    delete((*users("alice"), *clients(DEFAULT)), "producer_byte_rate,request_percentage"),
    delete(users(DEFAULT), "consumer_byte_rate"),
    delete(clients("app"), "consumer_byte_rate"),
    delete(clients(DEFAULT), "consumer_byte_rate"),
    delete(ips("127.0.0.1"), "connection_creation_rate"),
    delete(ips(DEFAULT), "connection_creation_rate"),
    show(users()),
    show(clients()),
    show(ips()),
)
"""One life of quotas, which leaves nothing behind."""


def transcript(release: str, bootstrap: str, calls: Sequence[Call]) -> Transcript:
    given = [("--bootstrap-server", bootstrap, *call) for call in calls]
    return [(call, same(said)) for call, said in zip(calls, kafka_configs(release, given), strict=True)]


def side_by_side(release: str, cluster: Cluster, weir: Weir, calls: Sequence[Call]) -> list[Transcript]:
    with ThreadPoolExecutor() as both:
        return list(both.map(lambda at: transcript(release, at.bootstrap, calls), (cluster, weir)))


@pytest.fixture
def cluster(kafka_cluster: StartCluster) -> Iterator[Cluster]:
    """A broker of 3.9.1 without quotas, before and after."""
    cluster = kafka_cluster("3.9.1")
    remove_all(cluster)
    yield cluster
    remove_all(cluster)


def remove_all(cluster: Cluster) -> None:
    """Other tests use the same broker.

    Until its connection quota of our own address is gone, the broker may turn us away, for a window at most.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            _remove_all(cluster)
        except ConnectionResetError:
            if time.monotonic() > deadline_s:
                raise
        else:
            return


def _remove_all(cluster: Cluster) -> None:
    broker = line(cluster.bootstrap)
    with broker:
        found = broker.ask(describe(), DescribeClientQuotasResponse, 1).entries or []
        entries = [
            entry(
                [(part.entity_type, part.entity_name) for part in each.entity],
                {value.key: None for value in each.values},
            )
            for each in found
        ]
        broker.ask(alter(*entries), AlterClientQuotasResponse, 1)


@pytest.fixture
def weir(cluster: Cluster, start_weir: StartWeir) -> Weir:
    return start_weir(cluster.bootstrap, "# nothing yet\n", options=ADMIN)


def test_kafka_configs_prints_equal_output_for_weir_and_a_broker(cluster: Cluster, weir: Weir) -> None:
    for release in ("2.8.2", "3.9.1", "4.2.0", "4.4.0"):
        own, through = side_by_side(release, cluster, weir, LIFE)
        assert through == own
        assert "must be greater than 0" in "\n".join(said.out + said.err for _call, said in own)
    assert weir.quota_file.read_text() == "# nothing yet\n"


# The requests themselves


def line(bootstrap: str) -> Connection:
    host, _, port = bootstrap.rpartition(":")
    return Connection((host, int(port)), timeout_s=10)


def described(at: Connection, message: DescribeClientQuotasRequest, version: int) -> object:
    """What is told, without the order of entities and of their parts, for there is none."""
    answer = at.ask(message, DescribeClientQuotasResponse, version)
    entries = [
        (
            sorted((part.entity_type, part.entity_name or "") for part in found.entity),
            sorted((value.key, value.value) for value in found.values),
        )
        for found in answer.entries or []
    ]
    return answer.error_code, answer.error_message, answer.entries is None, sorted(entries)


def altered(at: Connection, message: AlterClientQuotasRequest, version: int) -> object:
    answer = at.ask(message, AlterClientQuotasResponse, version)
    told = [
        (
            sorted((part.entity_type, part.entity_name or "") for part in found.entity),
            found.error_code,
            found.error_message,
        )
        for found in answer.entries
    ]
    return sorted(told, key=lambda each: each[0])


CLIENTS: Final[tuple[dict[str, str | None], ...]] = (
    {"user": "alice"},
    {"user": None},
    {"client-id": "app"},
    {"client-id": None},
    {"user": "alice", "client-id": "app"},
    {"user": "alice", "client-id": None},
    {"user": None, "client-id": "app"},
    {"user": None, "client-id": None},
)
SET_UP: Final = alter(
    *(
        entry(
            entity,
            {
                "producer_byte_rate": rate,
                "controller_mutation_rate": rate / 4,
                "request_percentage": 1000.0 + rate / 3,
            },
        )
        for rate, entity in enumerate(CLIENTS, start=1)
    ),
    entry({"ip": "10.0.0.1"}, {"connection_creation_rate": 10.0}),
    entry({"ip": None}, {"connection_creation_rate": 20.0}),
)
KAFKAS: Final = [
    (entity, ops, text)
    for entity, ops, text in BAD_ENTRIES
    if "Weir" not in text and "not a number" not in text
]
REQUESTS: Final = (
    *(
        alter(entry(entity, ops), entry({"user": "good"}, {"producer_byte_rate": 1.0}))
        for entity, ops, _ in KAFKAS
    ),
    alter(entry([("user", "a"), ("user", "b")], {"producer_byte_rate": 1.0})),
    alter(
        entry(
            {"user": "twice", "client-id": None}, [("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)]
        )
    ),
    alter(
        entry({"user": "d"}, {"producer_byte_rate": 1.0}), entry({"user": "d"}, {"consumer_byte_rate": 1.0})
    ),
    alter(entry({"user": "v"}, {"producer_byte_rate": 1.0}), validate_only=True),
    alter(entry({"user": "v"}, {"producer_byte_rate": 0.0}), validate_only=True),
    alter(entry({"user": "nobody"}, {"bogus": None, "connection_creation_rate": None})),
    alter(entry({"user": "empty"}, {})),
    alter(),
)


def test_client_quota_requests_are_answered_as_by_a_broker(cluster: Cluster, weir: Weir) -> None:
    own, through = line(cluster.bootstrap), line(weir.bootstrap)
    with own, through:
        for version in (0, 1):
            for change in (SET_UP, *REQUESTS):
                expected = altered(own, change, version)
                assert altered(through, change, version) == expected, change

        def heard() -> bool:
            return described(own, describe(), 1) == described(through, describe(), 1)

        until(heard, lambda: "the broker to describe what it has stored")
        for version in (0, 1):
            asked = [message for message, _count in FILTERS.values()]
            asked += [message for message, *_rest in BAD_FILTERS]
            for question in asked:
                assert described(through, question, version) == described(own, question, version), question


@pytest.mark.core
def test_kafka_configs_manages_quotas_of_a_0_10_cluster_through_weir(
    fresh_cluster: StartCluster, start_weir: StartWeir
) -> None:
    """A broker of 0.10.2.2 has no such API, nor one for SCRAM credentials: the tool ends with 1 where it asks
    for those after it has printed the quotas, as it does at a broker of 2.6.
    """
    cluster = fresh_cluster("0.10.2.2")
    weir = start_weir(cluster.bootstrap, options=ADMIN)
    said = dict(transcript("2.8.2", weir.bootstrap, LIFE))
    for call, (status, _out, err) in said.items():
        scram = call[0] == "--describe" and "clients" not in call and "users" in call
        wants_scram = scram and "--entity-default" not in call
        refused = call == add(users("alice"), "producer_byte_rate=0")
        assert status == (1 if wants_scram or refused else 0), (call, err)
        assert ("UnsupportedVersionException" in err) == wants_scram
    assert said[show(users("alice"))].out == (
        "Quota configs for user-principal 'alice' are consumer_byte_rate=2097152.0, "
        "controller_mutation_rate=0.25, producer_byte_rate=5.0, request_percentage=12.5"
    )


# Who may


def test_only_admins_that_the_broker_authenticated_alter_quotas(
    kafka_cluster: StartCluster, start_weir: StartWeir, tmp_path: Path
) -> None:
    """Whoever has not authenticated is ANONYMOUS, whom these admins include: the broker closes on him."""
    cluster = kafka_cluster("3.9.1")
    front = Front(start_weir, cluster, tmp_path, "", "--quota-admins", "User:weir;User:ANONYMOUS")
    change = add(users("alice"), "producer_byte_rate=1000")

    def by(user: User, call: Call) -> Call:
        config = tmp_path / f"{user.name}.properties"
        properties = java(Login(PLAIN, user)).items()
        config.write_text("".join(f"{key}={value}\n" for key, value in properties))
        return ("--command-config", str(config), *call)

    calls = [by(ALICE, change), by(ALICE, show(clients())), by(WEIR, change), by(WEIR, show(clients()))]
    calls.append(by(WEIR, show((*users("alice"), *clients()))))
    said = [found for _call, found in transcript("3.9.1", front.bootstrap, calls)]
    assert [found.status for found in said] == [1, 1, 0, 0, 0]
    for found in said[:2]:
        assert "ClusterAuthorizationException: User:alice is none of Weir's admins." in found.err
    assert parse(front.weir.quota_file.read_text()) == QuotaTable({(Entity(user="alice"), PRODUCE): 1000.0})
    audit = [json.loads(each) for each in front.weir.log.splitlines() if '"log": "weir.audit"' in each]
    assert [(each["event"], each["principal"]) for each in audit][-1] == ("quota altered", "User:weir")
    assert {each["principal"] for each in audit[:-1]} == {"User:alice"}

    nobody = line(front.bootstrap)
    with nobody, pytest.raises(EOFError):
        nobody.exchange(request(describe(), 1))
