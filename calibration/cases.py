"""The measured requests: each API in several sizes, so that its coefficients can be fitted separately.

The requests change only the calibrator's own topic and group.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from weir.calibration import bodies
from weir.calibration.batches import KB, Batch, batch, compressors, text
from weir.calibration.frames import kafka_name
from weir.protocol.api import ApiKey
from weir.protocol.messages import (
    ApiVersionsRequest,
    DescribeClusterRequest,
    DescribeGroupsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    ListGroupsRequest,
    ProduceRequest,
)
from weir.quotas.costs.cost_fitting import UNPACKED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from weir.calibration.frames import NodeApiVersions, Request
    from weir.protocol.values import Message

WRITTEN, SMALL, BIG = 0, 1, 2
"""Partition indexes of the calibrator's topic: `WRITTEN` is the target of most produce requests, `SMALL` has
one small record, `BIG` has half a megabyte of records.
"""
WIDE: Final = (WRITTEN, *range(3, 10))
"""Partition indexes of the produce request that writes to several partitions."""
PARTITIONS: Final = 34
MANY: Final = range(10, PARTITIONS)
"""Partition indexes to which no request produces, so that the partitions stay empty."""
BIG_BATCHES: Final = 32
MEDIUM_RECORDS: Final = 16
LARGE_RECORDS: Final = 200
FETCH_BYTES: Final = 500_000
CONVERTED_VERSION: Final = 3
"""The newest version of Fetch whose responses have an older record format than the broker stores, so that the
broker must convert the records.
"""
PAUSES_S: Final = (0.003, 0.006)

BY_REQUEST: Final = ("us", "us_per_request_kb")
BY_RESPONSE: Final = ("us", "us_per_response_kb")
COEFFICIENTS: Final[Mapping[ApiKey, tuple[str, ...]]] = {
    ApiKey.PRODUCE: (*BY_REQUEST, "us_per_partition", "us_acks_all", *(UNPACKED[c] for c in compressors())),
    ApiKey.FETCH: (*BY_REQUEST, "us_per_response_kb", "us_per_converted_kb"),
    ApiKey.LIST_OFFSETS: BY_REQUEST,
    ApiKey.METADATA: BY_RESPONSE,
    ApiKey.OFFSET_COMMIT: BY_REQUEST,
    ApiKey.OFFSET_FETCH: BY_RESPONSE,
    ApiKey.FIND_COORDINATOR: ("us",),
    ApiKey.HEARTBEAT: ("us",),
    ApiKey.DESCRIBE_GROUPS: ("us",),
    ApiKey.LIST_GROUPS: BY_RESPONSE,
    ApiKey.API_VERSIONS: ("us",),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: BY_REQUEST,
    ApiKey.DESCRIBE_CONFIGS: BY_RESPONSE,
    ApiKey.DESCRIBE_CLUSTER: BY_RESPONSE,
}
"""The measured APIs, and the names of the coefficients to fit for each. APIs that create or delete topics are
not measured: with `validate_only`, a broker does only a third of their work.
"""
NAMES: Final[Mapping[str, ApiKey]] = {kafka_name(api): api for api in COEFFICIENTS}
MEMBERS: Final = frozenset({ApiKey.HEARTBEAT})
"""APIs whose requests need a member of a group."""
GROUPS: Final = MEMBERS | {
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.DESCRIBE_GROUPS,
}
"""APIs whose requests need a group."""
TOPICS: Final = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_CONFIGS,
    }
)
"""APIs whose requests need a topic."""


@dataclass(frozen=True, slots=True)
class CalibrationCase:
    """One kind of request that the calibration sends repeatedly to measure its cost, with the amounts (such
    as partitions) that the cost depends on.
    """

    name: str
    request: Request
    known: Mapping[str, float] = field(default_factory=dict)
    """Amounts of the request, such as its number of partitions, by name of the coefficient that each is
    multiplied by. The sizes of request and response are missing, because they are measured.
    """
    converted: bool = False
    """True if the broker converts the records of the response to an older format."""
    pause_s: float = 0.0
    """Time (s) to wait before each request of this kind; a pause makes the broker idle."""

    @property
    def api(self) -> str:
        """Kafka's name of the request's API, such as OffsetCommit."""
        return kafka_name(self.request.api)

    def features(self, request_bytes: float, response_bytes: float) -> dict[str, float]:
        """Return the amounts of one request, by name of the coefficient that each is multiplied by: the
        request's cost is the sum of the products. `request_bytes` and `response_bytes` are sizes without the
        length field.
        """
        found = {
            "us": 1.0,
            "us_per_request_kb": request_bytes / KB,
            "us_per_response_kb": response_bytes / KB,
            **self.known,
        }
        return {**found, "us_per_converted_kb": response_bytes / KB} if self.converted else found


@dataclass(frozen=True, slots=True)
class OwnResources:
    """The names of the topic and the group that the calibrator creates at the broker, and its membership in
    the group.
    """

    topic: str
    group: str
    member: str = ""
    generation: int = -1


def cases(
    broker_versions: NodeApiVersions, own: OwnResources, apis: Iterable[ApiKey], now_ms: int
) -> list[CalibrationCase]:
    """Return the requests to measure for the given APIs, without APIs that the broker lacks, in an order in
    which they can be sent. `now_ms` is the timestamp of all records.
    """
    make = _Cases(broker_versions, own, now_ms)
    wanted = frozenset(apis)
    return [case for case in make.all() if case.request.api in wanted]


def filling(broker_versions: NodeApiVersions, own: OwnResources, now_ms: int) -> list[Request]:
    """Return the produce requests that write the records which fetch requests read later. Send each of these
    requests once, before all others.
    """
    make = _Cases(broker_versions, own, now_ms)
    small, medium = batch([bytes(100)], now_ms), batch(text(MEDIUM_RECORDS), now_ms)
    written = [(small, [SMALL]), *[(medium, [BIG])] * BIG_BATCHES]
    found = [broker_versions.request(make.produce(data, where)) for data, where in written]
    return [request for request in found if request is not None]


class _Cases:
    def __init__(self, broker_versions: NodeApiVersions, own: OwnResources, now_ms: int) -> None:
        self._broker_versions = broker_versions
        self._own = own
        self._now_ms = now_ms

    def all(self) -> Iterator[CalibrationCase]:
        yield from self._questions()
        yield from self._produce()
        yield from self._fetch()
        yield from self._partitions()
        yield from self._groups()
        yield from self._cold()

    def _one(
        self,
        name: str,
        message: Message,
        *,
        version: int | None = None,
        known: Mapping[str, float] | None = None,
        converted: bool = False,
        pause_s: float = 0.0,
    ) -> Iterator[CalibrationCase]:
        request = self._broker_versions.request(message, version)
        if request is not None:
            yield CalibrationCase(name, request, known or {}, converted, pause_s)

    def _questions(self) -> Iterator[CalibrationCase]:
        topic = self._own.topic
        api_versions = ApiVersionsRequest(client_software_name="weir", client_software_version="calibrate")
        yield from self._one("", api_versions)
        yield from self._one("of brokers", bodies.metadata(()))
        yield from self._one(f"of {PARTITIONS} partitions", bodies.metadata((topic,)))
        yield from self._one("", DescribeClusterRequest(endpoint_type=1))
        for what, keys in (("one setting", ["retention.ms"]), ("all settings", None)):
            yield from self._one(what, bodies.describe_configs((topic,), keys))

    def produce(self, records: Batch, indexes: Iterable[int], acks: int = 1) -> ProduceRequest:
        """Return a request that produces the same batch to each of these partitions of the calibrator's
        topic.
        """
        return bodies.produce({self._own.topic: indexes}, records.data, acks)

    def _produce(self) -> Iterator[CalibrationCase]:
        now_ms = self._now_ms
        small, medium = batch([bytes(100)], now_ms), batch(text(MEDIUM_RECORDS), now_ms)
        large = text(LARGE_RECORDS)
        yield from self._one("100 bytes", self.produce(small, [WRITTEN]))
        yield from self._one("16 kB", self.produce(medium, [WRITTEN]))
        yield from self._one("200 kB", self.produce(batch(large, now_ms), [WRITTEN]))
        known = {"us_per_partition": len(WIDE) - 1.0}
        yield from self._one(f"{len(WIDE)} partitions", self.produce(small, WIDE), known=known)
        known = {"us_acks_all": 1.0}
        yield from self._one("acks=all", self.produce(small, [WRITTEN], acks=-1), known=known)
        for codec in compressors():
            for what, values in (("words", large), ("zeros", [bytes(1000)] * LARGE_RECORDS)):
                packed = batch(values, now_ms, codec)
                yield from self._one(
                    f"200 kB of {what} as {codec}",
                    self.produce(packed, [WRITTEN]),
                    known={UNPACKED[codec]: packed.weighed_kb},
                )

    def _fetch(self) -> Iterator[CalibrationCase]:
        sizes = (("small", SMALL, FETCH_BYTES), ("17 kB", BIG, 17_500), ("500 kB", BIG, FETCH_BYTES))
        for what, index, at_most_bytes in sizes:
            yield from self._one(what, self._fetched([index], at_most_bytes))
        yield from self._one(f"{len(MANY)} empty partitions", self._fetched(MANY, FETCH_BYTES))
        newest = self._broker_versions.version(ApiKey.FETCH)
        if newest is not None and newest > CONVERTED_VERSION:
            for what, index, at_most_bytes in sizes[:2]:
                yield from self._one(
                    f"{what}, converted",
                    self._fetched([index], at_most_bytes),
                    version=CONVERTED_VERSION,
                    converted=True,
                )

    def _fetched(self, indexes: Iterable[int], at_most_bytes: int) -> FetchRequest:
        return bodies.fetch(self._own.topic, indexes, at_most_bytes)

    def _partitions(self) -> Iterator[CalibrationCase]:
        """Yield requests that list partitions: each API with one partition, and with many."""
        topic = self._own.topic
        for what, indexes in (("one partition", MANY[:1]), (f"{len(MANY)} partitions", MANY)):
            yield from self._one(what, bodies.list_offsets(topic, indexes))
            yield from self._one(what, bodies.leader_epoch(topic, indexes))

    def _groups(self) -> Iterator[CalibrationCase]:
        own = self._own
        yield from self._one("", FindCoordinatorRequest(key=own.group))
        yield from self._one("", ListGroupsRequest())
        if own.member:
            beat = HeartbeatRequest(group_id=own.group, generation_id=own.generation, member_id=own.member)
            yield from self._one("", beat)
        for what, indexes in (("one partition", MANY[:1]), (f"{len(MANY)} partitions", MANY)):
            commit = bodies.commit(own.topic, indexes, own.group, own.member, own.generation)
            yield from self._one(what, commit)
            yield from self._one(what, bodies.committed(own.topic, indexes, own.group))
        yield from self._one("", DescribeGroupsRequest(groups=[own.group]))

    def _cold(self) -> Iterator[CalibrationCase]:
        for pause_s in PAUSES_S:
            name = f"of {PARTITIONS} partitions, pauses of {pause_s * 1000:g} ms"
            yield from self._one(name, bodies.metadata((self._own.topic,)), pause_s=pause_s)
