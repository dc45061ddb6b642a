"""The loads of a measurement, and the requests of each."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from weir.conformance.probe.quotas import mutations, requests
from weir.conformance.probe.quotas.client import ProbeClient
from weir.conformance.probe.quotas.jobs import ClientQuota, Stage
from weir.conformance.probe.quotas.load import Driver, GreedyLoad, MeasuredAnswer
from weir.conformance.probe.quotas.rates import BYTE_QUOTAS, charge
from weir.conformance.probe.quotas.table import STRICT_CREATE, THROTTLED_METADATA
from weir.conformance.quota_names import MUTATION, REQUEST
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from weir.conformance.probe.quotas.client import Answer
    from weir.protocol.values import Message
    from weir.protocol.versions import VersionRange

RATE: Final = 100_000.0
"""Quota (bytes/s)."""
REQUEST_BYTES: Final = 2000
START_BYTES: Final = 20_000
"""Size (bytes) of requests that begin at full speed, so that this machine does not limit them."""
PERCENT: Final = 0.25
"""Quota (percent of a thread)."""
MUTATIONS: Final = 2.0
"""Quota (partitions/s)."""
LASTS_S: Final = 75.0
SETTLED_S: Final = 15.0
EVEN_S: Final = 12.0
START_S: Final = 30.0
"""Time (s) for which a load begins at full speed."""
CONNECTIONS: Final = 10


class Asking:
    """One connection of a load: a request, again and again. Use its `client` in a `with` block."""

    def __init__(self, stage: Stage, client: MeasuredClient, number: int) -> None:
        """Connect. `number`: of the connection. Raises ConversationError."""
        mutates = client.api_key is ApiKey.CREATE_PARTITIONS
        self.client = ProbeClient(stage.controller if mutates else stage.leader, stage.prefix + client.name)
        self._stage = stage
        self._number = number
        self._api_key, self._version, self._size = client.api_key, client.version, client.request_bytes
        self._partitions = 1
        """Number of partitions that the topic of a load of mutations has."""

    def ask(self) -> MeasuredAnswer:
        """Send a request, and return the response; `at_s` is a time of `time.monotonic`."""
        answer = self.client.ask(self._request(), self._api_key, self._version)
        codes = mutations.errors_of(answer)
        units = 0.0 if codes else self._units(answer)
        self._partitions += int(units) if self._api_key is ApiKey.CREATE_PARTITIONS else 0
        refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED in codes
        return MeasuredAnswer(answer.at_s, units, answer.throttle_ms, self._number, refused)

    def _request(self) -> Message:
        topic, topic_id = self._stage.topic, self._stage.topic_id
        if self._api_key is ApiKey.PRODUCE:
            return requests.produce(self._version, topic, topic_id, self._size)
        if self._api_key is ApiKey.FETCH:
            return requests.fetch(self._version, topic, topic_id, self._size)
        if self._api_key is ApiKey.METADATA:
            return requests.brokers()
        return requests.create_partitions(self.client.client_id, self._partitions + 1)

    def _units(self, answer: Answer) -> float:
        return float(charge(answer)) if self._api_key in (ApiKey.PRODUCE, ApiKey.FETCH) else 1.0


class MeasuredClient(msgspec.Struct, frozen=True):
    """A load, and the client that runs it."""

    name: str
    """"produce-steady"; its client-id is the stage's prefix with this name."""
    load: GreedyLoad
    api_key: ApiKey
    version: int
    key: str
    value: float
    request_bytes: int = 0
    """Size (bytes) of a record to write, or of the records to fetch."""

    def quota(self, stage: Stage) -> ClientQuota:
        return ClientQuota(stage.prefix + self.name, self.key, self.value)

    def drive(
        self, stage: Stage, number: int, clock: Callable[[], float]
    ) -> tuple[list[MeasuredAnswer], float]:
        """Run one connection of the load. Return (responses, `Driver.late_s`). Raises ConversationError."""
        asking = Asking(stage, self, number)
        with asking.client:
            driver = Driver(self.load, clock, time.sleep)
            return driver.drive(asking.ask), driver.late_s


def clients(stage: Stage) -> list[MeasuredClient]:
    """Return the clients that a target can have."""
    return [*_byte_clients(stage), *_time_clients(stage), *_mutation_clients(stage)]


def _byte_clients(stage: Stage) -> Iterator[MeasuredClient]:
    for kind, api_key, key in BYTE_QUOTAS:
        if not stage.of(api_key):
            continue
        make = partial(MeasuredClient, api_key=api_key, version=stage.of(api_key).max, key=key, value=RATE)
        even = GreedyLoad(RATE, EVEN_S, SETTLED_S, LASTS_S)
        yield make(name=f"{kind}-steady", load=even, request_bytes=REQUEST_BYTES)
        yield make(name=f"{kind}-start", load=GreedyLoad(RATE, 0.0, 0.0, START_S), request_bytes=START_BYTES)
        together = msgspec.structs.replace(even, connections=CONNECTIONS)
        yield make(name=f"{kind}-shared", load=together, request_bytes=REQUEST_BYTES)


def _time_clients(stage: Stage) -> Iterator[MeasuredClient]:
    version = stage.of(ApiKey.METADATA).max
    if version >= THROTTLED_METADATA:
        load = GreedyLoad(1.0, 0.0, SETTLED_S, LASTS_S)
        yield MeasuredClient("time", load, ApiKey.METADATA, version, REQUEST, PERCENT)


def _mutation_clients(stage: Stage) -> Iterator[MeasuredClient]:
    offered = stage.of(ApiKey.CREATE_PARTITIONS)
    if stage.of(ApiKey.CREATE_TOPICS).max < STRICT_CREATE:
        return  # brokers before 2.7, which have no such quota
    load = GreedyLoad(MUTATIONS, 0.0, SETTLED_S, LASTS_S)
    for name, version in _versions(offered):
        yield MeasuredClient(name, load, ApiKey.CREATE_PARTITIONS, version, MUTATION, MUTATIONS)


def _versions(offered: VersionRange) -> Iterator[tuple[str, int]]:
    strict_from = mutations.STRICT_PARTITIONS
    if offered.max >= strict_from:
        yield "strict", offered.max
    if offered.min < strict_from <= offered.max + 1:
        yield "lax", min(offered.max, strict_from - 1)
