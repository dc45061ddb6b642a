"""The result of a job, which the command line prints."""

from __future__ import annotations

from dataclasses import dataclass, field


class PipelineError(Exception):
    """A job cannot run; the message is one line with the problem, its location and the remedy."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A small table of results, to print."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one run of a job."""

    job: str
    read: dict[str, int] = field(default_factory=dict)
    """Number of inputs by kind, such as `{"records": 1000}`."""
    wrote: dict[str, int] = field(default_factory=dict)
    """Number of outputs by kind."""
    where: dict[str, str] = field(default_factory=dict)
    """Paths by kind of input or output."""
    notes: tuple[str, ...] = ()
    """Remarks for the operator, one line each."""
    listings: tuple[Listing, ...] = ()
    seconds: float = 0.0
    """Duration (s) of the run."""
