"""The result of a job, which the command line prints."""

from __future__ import annotations

from dataclasses import dataclass, field


class PipelineError(Exception):
    """Raised if a job cannot run; the message is one line with the problem, its location and the remedy."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A small table of a job's results, which the command line prints."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one run of a job, for printing: counts and paths by kind, remarks and tables."""

    job: str
    read: dict[str, int] = field(default_factory=dict)
    """Number of inputs read, by kind, such as `{"records": 1000}`."""
    wrote: dict[str, int] = field(default_factory=dict)
    """Number of outputs written, by kind."""
    where: dict[str, str] = field(default_factory=dict)
    """Paths of inputs and outputs, by kind."""
    notes: tuple[str, ...] = ()
    """Remarks for the operator, one line each."""
    listings: tuple[Listing, ...] = ()
    seconds: float = 0.0
    """Duration (s) of the run."""
