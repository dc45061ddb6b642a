"""Choices of records: the parameters that all lists of the admin API have."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec

from weir.proxy.control.snapshots.records import Where

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1000
TEXT_CHARS_MAX: Final = 1000

Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=TEXT_CHARS_MAX)]
BrokerName: TypeAlias = Annotated[str, msgspec.Meta(pattern="^(-?[0-9]{1,10}|cluster|unknown)?$")]
"""Node id of a broker, `cluster` (quotas of all brokers together), or `unknown`; empty for all."""


class Filter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of every list."""

    q: Text = ""
    """Text that a name contains, in upper or lower case."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT
    """Maximum number of records; the field `hidden` has the number of the others."""


def broker_name(where: Where) -> str:
    """Return the name of a broker as `BrokerName`."""
    return "unknown" if where is None else str(where)
