"""Replication throttles that brokers keep (`replication_throttles = "brokers"`), read by DescribeConfigs.

Each broker tells its own rates, so Weir asks every broker. Any broker tells the lists of all topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import trio

from weir.protocol.api import ApiKey
from weir.protocol.messages import DescribeConfigsResponse, MetadataRequest, MetadataResponse
from weir.proxy.addresses import Address
from weir.proxy.control.cluster.access import Access
from weir.proxy.control.cluster.connection import QuestionError
from weir.proxy.control.cluster.discovery import METADATA_VERSION
from weir.proxy.control.replication.cluster_connection import ClusterConnection, QueriedBroker, meet
from weir.proxy.control.replication.described_configs import (
    VERSIONS,
    Described,
    read,
    request_for,
)
from weir.proxy.control.replication.readable import LoggedProblems, ThrottleParser, described
from weir.proxy.control.replication.sources import Changed, SourceError
from weir.quotas.replication.throttles import ConfigKey, ReplicationThrottles, ResourceType

TOPICS_MAX: Final = 1000
"""Maximum number of topics in a request."""
AT_ONCE: Final = 5
"""Maximum number of brokers that Weir asks at the same time."""
SETTLE_S: Final = (0.1, 0.5, 2.0)
"""Pauses (s) before the reads that follow an alteration: brokers learn alterations from their controller, one
earlier than the other.
"""
REASONS_MAX: Final = 3
ALL_BROKERS: Final = ""
"""Name of the resource with the configurations of all brokers."""
TOO_OLD: Final = "brokers before 1.1 do not tell replication throttles: read them from ZooKeeper"


class BrokerSource:
    """The throttles that the cluster's brokers keep; implements `sources.ThrottleSource`."""

    name = "brokers"

    def __init__(
        self, brokers: Callable[[], Iterable[Address]], access: Access, timeout_s: float, period_s: float
    ) -> None:
        """Begin without throttles. `brokers` returns addresses of brokers to try; a connection and each
        response may take `timeout_s`. Throttles are read every `period_s`.
        """
        self._cluster = ClusterConnection(brokers, access, timeout_s)
        self._access = access
        self._timeout_s = timeout_s
        self._period_s = period_s
        self._altered = trio.Event()
        self._problems = LoggedProblems(self.name)
        self._parser = ThrottleParser(self._problems)
        self._of_topics: dict[ConfigKey, str] = {}
        self._of_brokers: dict[int, dict[ConfigKey, str]] = {}
        """Rates of each broker in its own configuration, by node id."""
        self._of_all_brokers: dict[ConfigKey, str] = {}

    def altered(self) -> None:
        """Read again soon."""
        self._altered.set()

    async def follow(self, changed: Changed, failed: Callable[[SourceError], None]) -> None:
        """Read the throttles every `period_s`, and soon after an alteration, until cancelled."""
        try:
            while True:
                await self._read(changed, failed)
                with trio.move_on_after(self._period_s):
                    await self._altered.wait()
                while self._altered.is_set():
                    self._altered = trio.Event()
                    await self._settle(changed, failed)
        finally:
            await self._cluster.aclose()

    async def _settle(self, changed: Changed, failed: Callable[[SourceError], None]) -> None:
        for pause_s in SETTLE_S:
            await trio.sleep(pause_s)
            await self._read(changed, failed)

    async def _read(self, changed: Changed, failed: Callable[[SourceError], None]) -> None:
        """Read the throttles and await `changed` with them; call `failed` if a broker does not tell its
        throttles. The last known throttles of that broker are kept.
        """
        try:
            metadata = await self._cluster.ask(self._metadata)
            await self._read_topics([topic.name for topic in metadata.topics if topic.name])
        except (QuestionError, SourceError) as error:
            failed(SourceError(str(error)))
            return
        failures = await self._read_brokers(
            {broker.node_id: Address(broker.host, broker.port) for broker in metadata.brokers}
        )
        await changed(await trio.to_thread.run_sync(self._throttles))
        if failures:
            failed(SourceError("; ".join(failures[:REASONS_MAX])))

    def _throttles(self) -> ReplicationThrottles:
        """Return the last known throttles of all topics and brokers. Runs in a thread: there may be many."""
        values = self._of_topics | self._of_all_brokers
        for told in self._of_brokers.values():
            values.update(told)
        return self._parser.parse(values)

    async def _metadata(self, broker: QueriedBroker) -> MetadataResponse:
        """Ask for all brokers and topics. Raises QuestionError; SourceError if the broker is too old."""
        _version(broker)
        return await broker.ask(MetadataRequest(topics=None), MetadataResponse, METADATA_VERSION)

    # Topics

    async def _read_topics(self, topics: list[str]) -> None:
        """Read the lists of these topics. Raises QuestionError, SourceError."""
        values: dict[ConfigKey, str] = {}
        for piece in _pieces(topics):
            found = await self._cluster.ask(partial(_describe, ResourceType.TOPIC, piece))
            self._say_hidden(found)
            values |= found.values | self._kept(found)
        self._of_topics = values

    def _kept(self, found: Described) -> dict[ConfigKey, str]:
        """Return the last known lists of the topics that the broker did not describe, and log the reason."""
        for topic, reason in found.errors.items():
            self._problems.say(
                "replication throttles of topic not read", (topic, reason), topic=topic, reason=reason
            )
        return {key: value for key, value in self._of_topics.items() if key.resource_name in found.errors}

    # Brokers

    async def _read_brokers(self, nodes: dict[int, Address]) -> list[str]:
        """Ask each broker for its rates and those of all brokers; return the reasons of failures."""
        failures: list[str] = []
        limiter = trio.CapacityLimiter(AT_ONCE)

        async def ask(node_id: int, address: Address) -> None:
            async with limiter:
                try:
                    rates = await self._rates(node_id, address)
                except (QuestionError, SourceError) as error:
                    failures.append(str(error))
                    return
            self._of_brokers[node_id] = {key: value for key, value in rates.items() if key.resource_name}
            self._of_all_brokers = {key: value for key, value in rates.items() if not key.resource_name}

        async with trio.open_nursery() as nursery:
            for node_id, address in nodes.items():
                nursery.start_soon(ask, node_id, address)
        return failures

    async def _rates(self, node_id: int, address: Address) -> dict[ConfigKey, str]:
        """Return the rates that a broker tells: its own, and those of all brokers. Raises QuestionError;
        SourceError if the broker does not tell them.
        """
        broker = await meet(self._access, address, self._timeout_s)
        async with broker.connection:
            found = await _describe(ResourceType.BROKER, [str(node_id), ALL_BROKERS], broker)
        for name, reason in found.errors.items():
            raise SourceError(f"{address}: broker {name or '<default>'}: {reason}")
        self._say_hidden(found)
        return found.values

    def _say_hidden(self, found: Described) -> None:
        for key in found.hidden:
            reason = "brokers hide the value: read it from ZooKeeper"
            self._problems.say("replication throttle skipped", key, **described(key), reason=reason)


def _version(broker: QueriedBroker) -> int:
    """Return the version of DescribeConfigs for this broker. Raises SourceError if the broker is too old."""
    version = broker.version(ApiKey.DESCRIBE_CONFIGS, VERSIONS)
    if version is None:
        raise SourceError(f"{broker.connection.address}: {TOO_OLD}")
    return version


async def _describe(kind: ResourceType, names: Iterable[str], broker: QueriedBroker) -> Described:
    """Ask for the throttles of these topics or brokers. Raises QuestionError, SourceError."""
    version = _version(broker)
    answer = await broker.ask(request_for(kind, names), DescribeConfigsResponse, version)
    return read(answer, kind)


def _pieces(topics: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(topics), TOPICS_MAX):
        yield topics[start : start + TOPICS_MAX]
