"""The filter of a DescribeClientQuotas request, and the response (Kafka's ClientQuotasImage)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import DescribeClientQuotasResponse
from weir.proxy.handlers.quota_api.entities import (
    IP,
    TYPES,
    Refused,
    WireEntity,
    invalid,
    on_wire,
)
from weir.quotas.table.names import canonical_ip

if TYPE_CHECKING:
    from weir.protocol.messages import DescribeClientQuotasRequest
    from weir.quotas import QuotaTable

EXACT: Final = 0
DEFAULT: Final = 1
ANY: Final = 2
"""Value of a filter's field match_type by which any name matches, and the default, too. EXACT matches one
name, DEFAULT only the default.
"""
_MATCH_NAMES: Final = {EXACT: "EXACT", DEFAULT: "DEFAULT", ANY: "SPECIFIED"}


@dataclass(frozen=True, slots=True)
class ClientQuotaFilter:
    """Filter of a DescribeClientQuotas request. It accepts an entity that has all entity types of the filter,
    with names that match. If `strict`, the entity may have no other types.
    """

    exact: Mapping[str, str | None]
    """Entity type → name that an entity must have; None for the default."""
    types: frozenset[str]
    """Entity types that an entity must have, with any name or the default."""
    strict: bool

    def matches(self, entity: WireEntity) -> bool:
        """Return True if the filter accepts the entity. A filter that names no entity types accepts every
        entity, or no entity if it is strict (accepts no types but its own).
        """
        if self.strict and len(entity) != len(self.exact) + len(self.types):
            return False
        return self.types <= entity.keys() and self.exact.items() <= entity.items()


def read_filter(request: DescribeClientQuotasRequest) -> ClientQuotaFilter:
    """Return the filter in a DescribeClientQuotas request. Raises Refused, with Kafka's codes and texts, if
    the filter is invalid.
    """
    exact: dict[str, str | None] = {}
    types: set[str] = set()
    for component in request.components:
        kind, match_type, match = component.entity_type, component.match_type, component.match
        _check_type(kind, {*exact, *types})
        _check_match(match_type, match)
        if match_type == ANY:
            types.add(kind)
        else:
            exact[kind] = _canonical(match) if kind == IP else match
    asked = {*exact, *types}
    if IP in asked and len(asked) > 1:
        raise invalid(
            "Invalid entity filter component combination. IP filter component should not be used with "
            "user or clientId filter component."
        )
    return ClientQuotaFilter(exact, frozenset(types), request.strict)


def _check_type(kind: str, before: set[str]) -> None:
    if not kind:
        raise invalid("Invalid empty entity type.")
    if kind in before:
        raise invalid(f"Entity type {kind} cannot appear more than once in the filter.")
    if kind not in TYPES:
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")


def _check_match(match_type: int, match: str | None) -> None:
    if match_type not in _MATCH_NAMES:
        raise invalid(f"Unknown match type {match_type}")
    if match_type == EXACT and match is None:
        raise invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
    if match_type != EXACT and match is not None:
        raise invalid(
            f"Request specified MATCH_TYPE_{_MATCH_NAMES[match_type]}, but also specified a match string."
        )


def _canonical(ip: str | None) -> str | None:
    """Return an IP address in the spelling that Weir uses. Return text that is no IP address unchanged; it
    matches no entity.
    """
    with suppress(ValueError):
        return None if ip is None else canonical_ip(ip)
    return ip


def described(table: QuotaTable, wanted: ClientQuotaFilter) -> DescribeClientQuotasResponse:
    """Return the DescribeClientQuotas response: every entity that the filter accepts, with its enforced
    quotas.
    """
    answer = DescribeClientQuotasResponse
    entries = []
    for entity, values in table.entities():
        wire = on_wire(entity)
        if wire is None or not wanted.matches(wire):
            continue
        entries.append(
            answer.EntryData(
                entity=[answer.EntityData(entity_type=kind, entity_name=name) for kind, name in wire.items()],
                values=[answer.ValueData(key=key.value, value=value) for key, value in values.items()],
            )
        )
    return answer(entries=entries)
