"""DescribeClientQuotas and AlterClientQuotas: requests, a connection that answers them, and its quotas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import body_of, request, response
from weir.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    Message,
    MetadataRequest,
    MetadataResponse,
)
from weir.proxy.connection.connection import Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.quota_api.quota_admin import Changes, ReplicationChanges
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable
from weir.quotas.replication.throttles import ConfigKey
from weir.quotas.table.quota_table import Quota

T = TypeVar("T")
M = TypeVar("M", bound="Message")
Parts = dict[str, str | None]
PRODUCE: Final = QuotaKey.PRODUCER_BYTE_RATE
FETCH: Final = QuotaKey.CONSUMER_BYTE_RATE
MUTATE: Final = QuotaKey.CONTROLLER_MUTATION_RATE
CONNECT: Final = QuotaKey.CONNECTION_CREATION_RATE
ALICE: Final = Entity(user="alice")
UNSUPPORTED: Final = 35
INVALID: Final = 42
TABLE: Final = QuotaTable(
    {
        (ALICE, PRODUCE): 1000.0,
        (ALICE, FETCH): 2000.0,
        (Entity(user=DEFAULT), PRODUCE): 500.0,
        (Entity(client_id="app"), FETCH): 300.0,
        (Entity(client_id=DEFAULT), FETCH): 200.0,
        (Entity(user="alice", client_id="app"), MUTATE): 0.5,
        (Entity(user="alice", client_id=DEFAULT), MUTATE): 1.0,
        (Entity(user=DEFAULT, client_id=DEFAULT), MUTATE): 2.0,
        (Entity(ip="10.0.0.1"), CONNECT): 10.0,
        (Entity(ip=DEFAULT), CONNECT): 20.0,
        (Entity(topic="t"), PRODUCE): 8.0,
    }
)
ON_THE_WIRE: Final = 9
"""Entities of these; a topic is Weir's own."""


class Managed:
    def __init__(self, table: QuotaTable = TABLE, *, denies: str | None = None, answers: bool = True) -> None:
        self.table = table
        self.asked: list[tuple[dict[Quota, float | None], str, str]] = []
        self.asked_of_replication: list[tuple[dict[ConfigKey, str | None], str, str]] = []
        self.waiting: list[Callable[[str | None], None]] = []
        self.computing: list[Callable[[], None]] = []
        self.broker_alterations = 0
        self.rejections = 0
        self._denies = denies
        self._answers = answers

    def rejection(self, user: str, peer: str) -> str | None:
        assert peer
        self.rejections += self._denies is not None
        return None if self._denies is None else self._denies.format(user)

    def alter(self, changes: Changes, who: str, peer: str, done: Callable[[str | None], None]) -> None:
        self.asked.append((dict(changes), who, peer))
        if self._answers:
            done(None)
        else:
            self.waiting.append(done)

    def alter_replication(
        self, changes: ReplicationChanges, who: str, peer: str, done: Callable[[str | None], None]
    ) -> None:
        self.asked_of_replication.append((dict(changes), who, peer))
        if self._answers:
            done(None)
        else:
            self.waiting.append(done)

    def compute(self, work: Callable[[], T], done: Callable[[T | None], None]) -> None:
        self.computing.append(lambda: done(work()))

    def altered_at_broker(self) -> None:
        self.broker_alterations += 1


def connection_of(quota_admin: Managed, *, manages: bool = True, user: str = "admin") -> Connection:
    connection = new_connection(plans=Plans(Counters(), manages_quotas=manages))
    connection.plans.quota_admin, connection.client.user, connection.client.peer = (
        quota_admin,
        user,
        "10.9.8.7:4711",
    )
    return connection


def component(
    kind: str, match_type: int, match: str | None = None
) -> DescribeClientQuotasRequest.ComponentData:
    """One part of a filter: 0 this name, 1 the default, 2 any."""
    return DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=match_type, match=match)


def describe(
    *components: DescribeClientQuotasRequest.ComponentData, strict: bool = False
) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(components=list(components), strict=strict)


def entry(
    entity: Parts | Sequence[tuple[str, str | None]],
    ops: Mapping[str, float | None] | Sequence[tuple[str, float | None]],
) -> AlterClientQuotasRequest.EntryData:
    """Changes of one entity; None removes."""
    message = AlterClientQuotasRequest
    parts = list(entity.items()) if isinstance(entity, dict) else list(entity)
    pairs = list(ops) if not hasattr(ops, "items") else list(ops.items())
    return message.EntryData(
        entity=[message.EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
        ops=[message.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in pairs],
    )


def alter(
    *entries: AlterClientQuotasRequest.EntryData, validate_only: bool = False
) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)


def shown(answer: DescribeClientQuotasResponse) -> dict[frozenset[tuple[str, str | None]], dict[str, float]]:
    assert answer.error_code == 0
    assert answer.throttle_time_ms == 0
    assert answer.entries is not None
    return {
        frozenset((part.entity_type, part.entity_name) for part in found.entity): {
            value.key: value.value for value in found.values
        }
        for found in answer.entries
    }


def results(answer: AlterClientQuotasResponse) -> list[tuple[Parts, int, str | None]]:
    assert answer.throttle_time_ms == 0
    return [
        ({part.entity_type: part.entity_name for part in found.entity}, found.error_code, found.error_message)
        for found in answer.entries
    ]


QUESTION: Final = MetadataRequest(topics=[])
"""What Weir asks the broker, to see whether it answers this client."""


def vouch(wire: Wire, correlation_id: int = 1) -> None:
    """The broker is asked for nothing, and answers."""
    assert bytes(wire.to_broker) == request(QUESTION, 1, correlation_id)
    wire.to_broker.clear()
    wire.feed(0, broker=response(MetadataResponse(), 1, correlation_id))


def answer_of(connection: Connection, message: Message, version: int, kind: type[M]) -> M:
    """What the connection answers, with or without asking the broker."""
    wire = Wire(connection)
    wire.feed(0, client=request(message, version))
    if wire.to_broker:
        vouch(wire)
    assert not wire.to_broker
    return body_of(bytes(wire.to_client), kind, version)


def altered(
    connection: Connection, message: AlterClientQuotasRequest, version: int = 1
) -> AlterClientQuotasResponse:
    return answer_of(connection, message, version, AlterClientQuotasResponse)
