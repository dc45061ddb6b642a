"""Read the records that a view shows from the admin API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec

from weir.proxy.control.snapshots.filters import LIMIT_MAX as LIMIT_MAX
from weir.proxy.control.snapshots.records import Brokers, Connections, Entities, EntityRecord, Status
from weir.proxy.control.snapshots.sentences import entity_text

T = TypeVar("T")

LISTED: Final = 200
"""Maximum number of records of a list in the terminal; a filter finds the others."""
CONNECTIONS_OF_ENTITY: Final = 20
"""Maximum number of connections in the detail of an entity."""


class View(StrEnum):
    """A list of the terminal program."""

    ENTITIES = "entities"
    CONNECTIONS = "connections"
    BROKERS = "brokers"


SORTS: Final[Mapping[View, tuple[str, ...]]] = {
    View.ENTITIES: ("usage", "rate", "name", "throttled"),
    View.CONNECTIONS: (
        "waits",
        "in_bytes_per_s",
        "out_bytes_per_s",
        "in_bytes",
        "out_bytes",
        "in_flight",
        "opened",
    ),
    View.BROKERS: (),
}
"""Sort orders of each view, as the API names them; the first is the default."""


class Wanted(msgspec.Struct, frozen=True):
    """The choice of records, and their order."""

    view: View = View.ENTITIES
    sort: str = SORTS[View.ENTITIES][0]
    """Sort order of the view; brokers have none."""
    text: str = ""
    """Text that a name contains."""
    shadow: bool | None = None
    """True for shadow quotas, False for enforced ones; None for enforced ones, if any quota is enforced."""
    limit: int = LISTED
    entity: EntityRecord | None = None
    """Entity whose connections are wanted, too."""


class TopReading(msgspec.Struct, frozen=True, omit_defaults=True):
    """Records of one moment; None for lists that were not asked for."""

    status: Status
    entities: Entities | None = None
    connections: Connections | None = None
    brokers: Brokers | None = None
    connections_of_entity: Connections | None = None

    def is_shadow(self, wanted: Wanted) -> bool:
        """Return True if the entities are those of shadow quotas."""
        return _is_shadow(wanted, self.status)


class Ask(Protocol):
    """Function that requests a page of the admin endpoint. Raises AdminError."""

    def __call__(self, path: str, query: Mapping[str, str], kind: type[T], /) -> T:
        """Return the page's JSON, decoded as the type `kind`."""


Reader: TypeAlias = Callable[[Wanted], TopReading]
"""Function that reads the wanted records. Raises AdminError."""


def read(ask: Ask, wanted: Wanted) -> TopReading:
    """Return the status, and the list of the wanted view. Raises AdminError."""
    status = ask("/api/status", {}, Status)
    query = {"q": wanted.text, "limit": str(wanted.limit)}
    if wanted.view is View.BROKERS:
        return TopReading(status, brokers=ask("/api/brokers", query, Brokers))
    if wanted.view is View.CONNECTIONS:
        return TopReading(
            status, connections=ask("/api/connections", {**query, "sort": wanted.sort}, Connections)
        )
    of_entity = None if wanted.entity is None else _connections_of(ask, wanted.entity)
    query["shadow"] = "true" if _is_shadow(wanted, status) else "false"
    return TopReading(status, _entities(ask, wanted, query), connections_of_entity=of_entity)


def _is_shadow(wanted: Wanted, status: Status) -> bool:
    return status.all_in_shadow if wanted.shadow is None else wanted.shadow


def read_all(ask: Ask, wanted: Wanted) -> TopReading:
    """Return all lists. Raises AdminError."""
    first = read(ask, msgspec.structs.replace(wanted, view=View.ENTITIES))
    waits = SORTS[View.CONNECTIONS][0]
    connections = read(ask, msgspec.structs.replace(wanted, view=View.CONNECTIONS, sort=waits)).connections
    brokers = read(ask, msgspec.structs.replace(wanted, view=View.BROKERS)).brokers
    return TopReading(first.status, first.entities, connections, brokers)


def _entities(ask: Ask, wanted: Wanted, query: Mapping[str, str]) -> Entities:
    """Return throttled entities, then the others. The API's list in another order than `throttled` may lack
    throttled entities, so they are asked for, too.
    """
    listed = ask("/api/entities", {**query, "sort": wanted.sort}, Entities)
    throttled = ask("/api/throttled", query, Entities)
    by_id = {entity.id: entity for entity in (*throttled.entities, *listed.entities)}
    found = sorted(by_id.values(), key=lambda entity: (not is_throttled(entity), *_rank(entity, wanted.sort)))
    hidden = listed.hidden + len(listed.entities) - len(found[: wanted.limit])
    return Entities(now_ms=listed.now_ms, hidden=max(hidden, 0), entities=tuple(found[: wanted.limit]))


def _rank(entity: EntityRecord, sort: str) -> tuple[float, str, str]:
    ranks = {"usage": entity.usage or 0.0, "rate": entity.rate, "name": 0.0, "throttled": entity.throttle_ms}
    return -ranks[sort], name_of(entity), f"{entity.quota} {entity.broker}"


def _connections_of(ask: Ask, entity: EntityRecord) -> Connections:
    query = {
        "user": entity.user or "",
        "client_id": entity.client_id or "",
        "broker": str(entity.broker) if isinstance(entity.broker, int) else "",
        "q": entity.client_id_prefix or entity.ip or "",
        "limit": str(CONNECTIONS_OF_ENTITY),
        "sort": SORTS[View.CONNECTIONS][0],
    }
    return ask("/api/connections", {key: value for key, value in query.items() if value}, Connections)


def is_throttled(entity: EntityRecord) -> bool:
    """Return True if the entity is throttled, or was in the last seconds: an entity does not leave its place
    between two throttle times.
    """
    return entity.throttled or entity.throttled_since_ms is not None


def name_of(entity: EntityRecord) -> str:
    """Return the names of an entity, such as `user=alice, client-id=etl`."""
    return entity_text([name or "" for name in names_of(entity)])


def names_of(entity: EntityRecord) -> tuple[str | None, ...]:
    """Return the parts of an entity's name, one for each type; None for a type that it lacks."""
    its = entity
    return (its.user, its.client_id, its.client_id_prefix, its.topic, its.ip, its.group, its.topic_prefix)
