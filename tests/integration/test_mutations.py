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
    mutable,
    quota,
)
from tests.integration.topic_creation import APP, CREATE, OK, REFUSED
from tests.integration.weir_log import assert_no_complaint
from tests.kafka.fixtures import StartCluster
from tests.mutations.client import perform
from tests.mutations.requests import Create, Topic
from tests.wire.connection import Connection

pytestmark = [pytest.mark.broker]


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
