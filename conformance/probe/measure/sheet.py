"""A datasheet: the figures of one target, as JSON."""

from __future__ import annotations

import msgspec

from weir.conformance.probe.measure.figures import SharedFigures, StartFigures, SteadyFigures


class ByteSheet(msgspec.Struct, frozen=True):
    """Figures under a byte rate."""

    steady: SteadyFigures
    start: StartFigures
    shared: SharedFigures


class TimeSheet(msgspec.Struct, frozen=True):
    """Figures under request_percentage. Nobody outside knows what a request costs a broker, so the rates are
    shares of their mean.
    """

    percent: float
    requests_per_s: float
    request_ms: float
    """Time (ms) that the target counts for a request, if it holds the quota exactly."""
    steady: SteadyFigures
    start: StartFigures


class MutationSheet(msgspec.Struct, frozen=True):
    """Figures under a quota of mutations, with CreatePartitions."""

    version: int
    steady: SteadyFigures
    start: StartFigures


class Datasheet(msgspec.Struct, frozen=True):
    """JSON of `weir probe --profile quotas --measure --json`. None: the target lacks the quota."""

    target: str
    """Address, or a name that its reader gives."""
    date: str
    produce: ByteSheet | None
    fetch: ByteSheet | None
    request_time: TimeSheet | None
    strict: MutationSheet | None
    """With a version that knows error 89."""
    lax: MutationSheet | None
    """With an older version."""
    error_89: dict[str, str]
    """API → versions that the target answered with error 89."""
    late_ms: float
    """Longest time (ms) by which the measuring machine ended a sleep too late."""
    notes: list[str] = []


def parse_sheet(data: bytes) -> Datasheet:
    """Return the datasheet in JSON. Raises msgspec.DecodeError."""
    return msgspec.json.decode(data, type=Datasheet)
