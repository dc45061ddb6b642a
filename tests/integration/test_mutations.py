"""Mutation quotas (KIP-599) in front of real brokers of every age, by requests on plain connections."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from tests.integration.conftest import StartWeir
from tests.integration.mutable import (
    RELEASES,
    SMALL,
    await_partitions,
    burst,
    controller,
    delete,
    listener,
    mutable,
    quota,
)
from tests.integration.topic_creation import APP, CREATE, DELETE, FIVE, GROW, NEVER, OK, REFUSED, create
from tests.integration.weir_log import assert_no_complaint
from tests.kafka.fixtures import StartCluster
from tests.kafka.releases import core_at
from tests.kafka.settings import HOST
from tests.mutations.client import ask_once, perform
from tests.mutations.requests import Answer, Create, Delete, Grow, Topic
from tests.wire.connection import Connection
from weir.protocol.error_codes import ErrorCode

pytestmark = [pytest.mark.broker]


def codes(answer: Answer) -> dict[str | None, int]:
    return {result.name: result.error_code for result in answer.results}


@pytest.mark.parametrize("version", core_at(RELEASES, core=("0.10.2.2",)))
def test_topics_of_a_request_are_admitted_in_order_until_tokens_run_out(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    """Topics are charged in the request's order; those that are refused are as they were."""
    cluster = mutable(kafka_cluster, version)
    weir = start_weir(cluster.bootstrap, quota(NEVER), options=FIVE)
    address = controller(weir, cluster)
    a, b, c = (f"{topic}-{letter}" for letter in "abc")
    request = Create(tuple(Topic(name, 3, configs=SMALL) for name in (a, b, c)), version=CREATE)
    answer = ask_once(address, APP, request)
    assert codes(answer) == {a: OK, b: OK, c: REFUSED}
    assert answer.throttle_ms == pytest.approx(1_000_000, abs=30_000), "one partition at 0.001/s"
    await_partitions(cluster, {a: 3, b: 3, c: 0})
    if version != "0.10.2.2":
        assert codes(ask_once(address, "grower", Grow(((a, 9), (b, 4)), version=GROW))) == {a: OK, b: REFUSED}
        await_partitions(cluster, {a: 9, b: 3})
    deletion = ask_once(address, "deleter", Delete((a, b, a[:-1] + "z"), version=DELETE))
    grown = version != "0.10.2.2"
    expected = {a: OK, b: REFUSED if grown else OK, a[:-1] + "z": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert codes(deletion) == expected
    await_partitions(cluster, {a: 0, b: 3 if grown else 0})
    assert_no_complaint(weir.log)


def test_mutations_at_both_brokers_are_charged_to_one_token_bucket(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    cluster = mutable(kafka_cluster, "3.9.1")
    weir = start_weir(cluster.bootstrap, quota(NEVER), options=FIVE)
    asked = [create(listener(weir, number % 2), f"{topic}-{number}", 3) for number in range(4)]
    assert asked == [OK, OK, REFUSED, REFUSED]
    assert create((HOST, weir.port), f"{topic}-4", 3) == REFUSED, "at the bootstrap listener too"
    assert_no_complaint(weir.log)


@pytest.mark.core
def test_a_client_that_asked_the_wrong_broker_is_charged_once(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    """With ZooKeeper only the controller creates topics; the other broker's refusal costs nothing."""
    cluster = mutable(kafka_cluster, "2.8.2")
    weir = start_weir(cluster.bootstrap, quota(NEVER), options=FIVE)
    boss = cluster.controller()
    other = next(node_id for node_id in cluster.ports if node_id != boss)
    assert create(listener(weir, other), topic, 5) == ErrorCode.NOT_CONTROLLER
    assert create(listener(weir, boss), topic, 5) == OK
    assert create(listener(weir, boss), f"{topic}-1", 1) == OK, "the balance was zero, not negative"
    assert create(listener(weir, boss), f"{topic}-2", 1) == REFUSED
    assert_no_complaint(weir.log)


@pytest.mark.measured
def test_the_example_of_kip_599_on_brokers_of_every_age(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str
) -> None:
    """All five wait at the same time. The last test here: brokers take a while to delete 2800 partitions."""
    clusters = {version: mutable(kafka_cluster, version) for version in RELEASES}
    weirs = {
        version: start_weir(cluster.bootstrap, quota(5), options=burst(100))
        for version, cluster in clusters.items()
    }
    with ExitStack() as stack:
        examples = []
        for version in RELEASES:
            address = controller(weirs[version], clusters[version])
            one, other = (stack.enter_context(Connection(address, APP)) for _ in range(2))
            examples.append(Example(version, topic, one, other))
        for example in examples:
            example.exceeds_and_tries_again()
        for example in examples:
            example.is_admitted_in_time()
    for example in examples:
        cluster = clusters[example.version]
        await_partitions(cluster, dict.fromkeys(example.names, 80) | {example.next: 1})
        delete(cluster, [*example.names, example.next])
        assert_no_complaint(weirs[example.version].log)


class Example:
    """Quota 5, 100 samples of 1 s: 7 topics of 80 partitions leave 500 - 560, and 12 s to wait."""

    def __init__(self, version: str, topic: str, one: Connection, other: Connection) -> None:
        self.version = version
        self.names = [f"{topic}-{number}" for number in range(7)]
        self.next = f"{topic}-7"
        self._seven = Create(tuple(Topic(name, 80, configs=SMALL) for name in self.names), version=CREATE)
        self._eighth = Create((Topic(self.next, configs=SMALL),), version=CREATE)
        self._one, self._other = one, other
        for connection in (one, other):
            perform(connection, Create((), version=CREATE))  # Weir knows the broker's versions from here on
        self._began_s = 0.0

    def exceeds_and_tries_again(self) -> None:
        """All are admitted at once; what comes next is refused, and sent again."""
        self._began_s = time.monotonic()
        self._one.send(self._seven.frame(APP))
        refused = perform(self._other, self._eighth)
        passed_ms = 1000 * (time.monotonic() - self._began_s)
        assert refused.error_codes == (REFUSED,), f"{self.version}: {refused}"
        assert 12_000 - passed_ms - 1 <= refused.throttle_ms <= 12_000, f"{self.version}, {passed_ms=}"
        self._other.send(self._eighth.frame(APP))

    def is_admitted_in_time(self) -> None:
        """Nobody slept here: the connection was not read for the time that it had been told."""
        admitted = self._eighth.answer(self._other.receive())
        waited_s = time.monotonic() - self._began_s
        assert (admitted.error_codes, admitted.throttle_ms) == ((OK,), 0), f"{self.version}: {admitted}"
        assert waited_s >= 11.99, self.version
        created = self._seven.answer(self._one.receive())
        assert (created.error_codes, created.throttle_ms) == ((OK,) * 7, 0), f"{self.version}: {created}"
