"""The changes in an AlterClientQuotas request, checked (Kafka's ClientQuotaControlManager).

Entries are independent; within an entry, either all operations succeed or none. Order of checks, error codes
and texts are those of a KRaft controller. Where Weir refuses more than Kafka does, the text is Weir's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import AlterClientQuotasResponse
from weir.protocol.pieces import Pieces, each
from weir.proxy.handlers.quota_api.entities import (
    IP,
    TYPES,
    Refused,
    WireEntity,
    from_wire,
    invalid,
    shown,
)
from weir.quotas import DEFAULT, QuotaKey
from weir.quotas.table.names import canonical_ip
from weir.quotas.table.quota_entry import least
from weir.quotas.table.quota_kind import KINDS, OF_CLIENTS, OF_IPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weir.protocol.messages import AlterClientQuotasRequest
    from weir.quotas.table.quota_table import Quota

CHANGES_MAX: Final = 10_000
"""Maximum number of changes in a request, as in a KRaft controller
(QuorumController.MAX_RECORDS_PER_USER_OP).
"""
RATE_MAX: Final = 2.0**63
"""Maximum value of a quota that is a rate: the largest Java long, as a double. Weir's quota file has the same
maximum.
"""
_MOST: Final = {
    "LONG": (RATE_MAX, "a LONG"),
    "INT": (2.0**31 - 1, "an INT"),
    "DOUBLE": (RATE_MAX, "Weir's quota file"),
}
"""Type of a quota's values → (maximum, its name)."""
_FRACTION_MAX: Final = 1e-6
"""Maximum distance from a whole number at which Kafka still accepts a value for a quota that it stores as a
whole number.
"""

_KEYS: Final = {key.value: key for key in QuotaKey}


@dataclass(slots=True)
class Alterations:
    """Changes that an AlterClientQuotas request makes, and the error of each entity that was refused."""

    changes: dict[Quota, float | None] = field(default_factory=dict)
    """Quota → new value; None removes the quota."""
    outcomes: dict[frozenset[tuple[str, str | None]], tuple[WireEntity, Refused | None]] = field(
        default_factory=dict
    )
    """Entity with its error, for every entity of the request; the error is None if the entity was accepted.
    """

    def read(self, entry: AlterClientQuotasRequest.EntryData) -> None:
        """Check an entry of the request; add its changes, or its error.

        If an entity occurs twice, Kafka makes the first change and reports an error for the entity.
        """
        wire = {part.entity_type: part.entity_name for part in entry.entity}  # the last of a type counts
        identity = frozenset(wire.items())
        ops = {op.key: None if op.remove else op.value for op in entry.ops}
        refused: Refused | None = None
        if identity in self.outcomes or len(ops) < len(entry.ops):
            refused = invalid(f"Ignoring duplicate entity {shown(wire)}")
        else:
            try:
                self.changes.update(_changes(wire, ops))
            except Refused as error:
                refused = error
        self.outcomes[identity] = wire, refused

    def response(self, failure: Refused | None = None) -> Pieces[AlterClientQuotasResponse]:
        """Return the response to the request. `failure` is the error of entities that have no error of their
        own, None for success.
        """
        entries = yield from each(
            lambda outcome: _result(list(outcome[0].items()), outcome[1] or failure), self.outcomes.values()
        )
        return AlterClientQuotasResponse(entries=entries)


def refused_all(request: AlterClientQuotasRequest, refused: Refused) -> Pieces[AlterClientQuotasResponse]:
    """Return a response with the same error for every entry, as Kafka does for clients without permission to
    alter.
    """
    entries = yield from each(
        lambda entry: _result([(part.entity_type, part.entity_name) for part in entry.entity], refused),
        request.entries,
    )
    return AlterClientQuotasResponse(entries=entries)


def refused_whole(refused: Refused) -> AlterClientQuotasResponse:
    """Return a response with one error for a whole request whose entries were not read; the response names no
    entity.
    """
    return AlterClientQuotasResponse(entries=[_result([], refused)])


def read_alterations(request: AlterClientQuotasRequest) -> Pieces[Alterations]:
    """Check every entry of an AlterClientQuotas request; return the changes and errors."""
    found = Alterations()
    yield from each(found.read, request.entries)
    return found


def _result(
    parts: Sequence[tuple[str, str | None]], refused: Refused | None
) -> AlterClientQuotasResponse.EntryData:
    answer = AlterClientQuotasResponse
    return answer.EntryData(
        error_code=ErrorCode.NONE if refused is None else refused.code,
        error_message=None if refused is None else refused.text,
        entity=[answer.EntityData(entity_type=kind, entity_name=name) for kind, name in parts],
    )


def _changes(wire: WireEntity, ops: Mapping[str, float | None]) -> dict[Quota, float | None]:
    """Return the changes of one entity's quotas. Raises Refused if one of them is invalid."""
    keys = _keys(wire)
    try:
        entity = from_wire(wire)
    except ValueError as error:
        raise invalid(str(error)) from None
    changes: dict[Quota, float | None] = {}
    for name, value in ops.items():
        key = _KEYS.get(name)
        if key is not None and key in keys:
            changes[entity, key] = None if value is None else _checked(key, value)
        elif value is not None:  # a value that cannot be set counts as removed
            raise invalid(f"Invalid configuration key {name}")
    return changes


def _keys(wire: WireEntity) -> frozenset[QuotaKey]:
    """Return the quota keys that the entity may have. Raises Refused if no such entity can exist."""
    if not wire:
        raise invalid("Invalid empty client quota entity")
    for kind, name in wire.items():
        if kind not in TYPES:
            raise invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise invalid(f"Empty {kind} not supported")
    if IP in wire:
        if len(wire) > 1:
            raise invalid(
                "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
            )
        _check_ip(wire[IP])
        return frozenset(OF_IPS)
    for kind, name in wire.items():
        _check_name(kind, name)
    return frozenset(OF_CLIENTS)


def _check_ip(name: str | None) -> None:
    """Raise Refused unless `name` is an IP address. Kafka also accepts host names."""
    if name is None:
        return
    try:
        canonical_ip(name)
    except ValueError:
        raise invalid(f"{name} is not a valid IP or resolvable host.") from None


def _check_name(kind: str, name: str | None) -> None:
    if name == DEFAULT.value:
        raise invalid(
            f"A {kind} that is called {name} cannot be told from the default in Weir's quota file: rename it"
        )


def _checked(key: QuotaKey, value: float) -> float:
    """Return the quota value to store. Raises Refused if the value is invalid."""
    name = key.value
    if value <= 0:
        raise invalid(f"Quota {name} must be greater than 0")
    if math.isnan(value):
        raise invalid(f"{name} is not a number")
    stored = KINDS[key].type
    most, kind = _MOST[stored]
    if value > most:
        raise invalid(f"Proposed value for {name} is too large for {kind}.")
    if stored == "DOUBLE":
        if value < least(key):
            raise invalid(f"Proposed value for {name} is too small for Weir, the least is {least(key):f}.")
        return value
    if value % 1 > _FRACTION_MAX or value < 1:
        raise invalid(f"{name} cannot be a fractional value.")
    return value // 1
