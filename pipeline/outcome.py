"""What every job returns and the command line prints: what it read, wrote, and where."""

from __future__ import annotations

from dataclasses import dataclass, field


class PipelineError(Exception):
    """A job cannot do what it was asked for: one line that says what is wrong, where, and what to do."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A few rows worth a look."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run of a job."""

    job: str
    read: dict[str, int] = field(default_factory=dict)
    """Counts by what was read, such as `{"records": 1000}`."""
    wrote: dict[str, int] = field(default_factory=dict)
    where: dict[str, str] = field(default_factory=dict)
    """Paths by what is there."""
    notes: tuple[str, ...] = ()
    """What whoever runs it should know, each one line."""
    listings: tuple[Listing, ...] = ()
    seconds: float = 0.0
