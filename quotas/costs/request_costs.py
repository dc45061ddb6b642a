"""Tables of request costs: coefficients in µs of one thread, and the files that contain them.

A broker charges a request with the time that its threads spent on it (KIP-124). A proxy does not see that
time. It sees the bytes of a request and of its response. So the cost is a model with a few coefficients per
API, which were measured at real brokers:

    us + us_per_request_kb · request + us_per_response_kb · response + ...

Weir ships one table per generation of brokers (`costs/`), with the origin of its figures; `weir calibrate`
writes a table for a given broker. A kB is 1000 bytes.
"""

# mypyc: skip, because mypyc drops the options of msgspec's structs, such as kw_only.
from __future__ import annotations

import tomllib
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar

import msgspec

from weir.quotas.table.quota_entry import shown

if TYPE_CHECKING:
    from collections.abc import Collection

T = TypeVar("T")

CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
"""Names of the codecs 1 to 4 in the attributes of a batch of records."""
Microseconds = Annotated[float, msgspec.Meta(ge=0.0, le=1e9)]


class ApiCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """Cost of one request of an API (µs of one thread). Omitted terms are zero."""

    us: Microseconds
    us_per_request_kb: Microseconds = 0.0
    us_per_response_kb: Microseconds = 0.0
    us_per_partition: Microseconds = 0.0
    """Cost of each partition of a produce request beyond the first."""
    us_acks_all: Microseconds = 0.0
    """Additional cost of a produce request with acks=all."""
    us_per_unpacked_kb: dict[Literal["gzip", "snappy", "lz4", "zstd"], Microseconds] = {}
    """Codec → cost of each kB of the unpacked size of a produce request's compressed records, which brokers
    unpack for validation. A packed kB costs as much as three unpacked ones (`PACKED_WEIGHT`).
    """
    us_per_session_kb: Microseconds = 0.0
    """Cost of each kB by which a fetch request of a fetch session (KIP-227) is shorter than the longest
    request of that fetch session.
    """
    us_per_converted_kb: Microseconds = 0.0
    """Additional cost of each kB of a fetch response that the broker converts to an older record format."""


class ColdCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Additional cost of a request whose broker was idle before: its caches are cold, its threads parked. For
    an idle time t of at least `from_us` it is `us` · min(1, t / `full_us`).
    """

    us: Microseconds
    """Maximum additional cost (µs)."""
    from_us: Microseconds
    """Minimum idle time (µs) that has an additional cost."""
    full_us: Annotated[float, msgspec.Meta(gt=0.0, le=1e9)]
    """Idle time (µs) from which the additional cost is at its maximum."""


class CostTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Request costs at one generation of brokers."""

    format: Literal[1] = 1
    broker: str
    """Release that was measured, such as 3.9.1."""
    source: str
    """Date and method of the measurement."""
    cold: ColdCost
    rest: ApiCost
    """Cost of every API that is not in `apis`."""
    apis: dict[str, ApiCost]
    """Kafka's name of the API, such as `OffsetCommit` → cost."""

    def of(self, api: str) -> ApiCost:
        """Return the cost coefficients of this API; if the table has none for the API, those of all other
        APIs (`rest`).
        """
        return self.apis.get(api, self.rest)


class Overrides(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Contents of the operator's file of costs. Values omitted there are taken from the shipped table."""

    format: Literal[1] = 1
    broker: str = ""
    source: str = ""
    cold: ColdCost | None = None
    rest: ApiCost | None = None
    apis: dict[str, ApiCost] = {}

    def over(self, table: CostTable) -> CostTable:
        """Return a copy of `table` in which the values of this file replace the values of `table`."""
        return CostTable(
            broker=self.broker or table.broker,
            source=self.source or table.source,
            cold=self.cold or table.cold,
            rest=self.rest or table.rest,
            apis={**table.apis, **self.apis},
        )


class CostsError(ValueError):
    """Raised if a file of costs cannot be used. The message is one line, without the file's name."""


GENERATIONS: Final = ("1.1", "2.8", "3.9", "4.2")
"""Kafka releases with a shipped table, oldest first."""
_SHOWN_MAX: Final = 200


@cache
def shipped(generation: str) -> CostTable:
    """Return the shipped table of `generation`, one of `GENERATIONS` (cached)."""
    text = files("weir.quotas").joinpath("costs", f"{generation}.toml").read_text("utf-8")
    return msgspec.toml.decode(text, type=CostTable)


def parse(text: str, apis: Collection[str]) -> Overrides:
    """Return the costs in the text of a file of costs. `apis`: names of APIs that the file may contain.
    Raises CostsError.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # numbers of 5000 digits and deep nesting, too
        raise CostsError(f"not valid TOML: {_one_line(error)}; correct this place") from None
    costs = document.get("apis")
    for name, cost in costs.items() if isinstance(costs, dict) else ():
        if name not in apis:
            close = get_close_matches(name, apis, n=1)
            advice = f"did you mean {close[0]}?" if close else "remove it, or write Kafka's name of it"
            raise CostsError(f"apis: Kafka has no API {shown(name)}; {advice}")
        _converted(cost, ApiCost, f"apis.{name}")
    return _converted(document, Overrides, "")


def _converted(value: object, kind: type[T], place: str) -> T:
    """Return `value`, found at `place` of the file (such as `apis.Fetch`), as a `kind`. Raises CostsError."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        what, _at, path = _one_line(error).partition(" - at ")
        what = what.replace("Object contains unknown field", "unknown key")
        what = what.replace("Object missing required field", "missing key")
        where = (place + path.rpartition("$")[2].strip("`")).removeprefix(".")
        remedy = f"correct it, or leave {place} out for the shipped figures" if place else "correct it"
        raise CostsError(f"{where + ': ' if where else ''}{what}; {remedy}") from None


def _one_line(error: Exception) -> str:
    text = "".join(char if char.isprintable() else " " for char in str(error))
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."
