"""Times of the wall clock, in UTC, as quota files and commands write them."""

# mypyc: skip, because no request calls it.
from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

EXAMPLE: Final = "2026-12-01T06:00:00Z"


def now_utc() -> datetime:
    """Return the time of the wall clock."""
    return datetime.now(UTC)


def read_time(text: str) -> datetime:
    """Return a time such as 2026-12-01T06:00:00Z (RFC 3339). Raises ValueError."""
    try:
        return in_utc(datetime.fromisoformat(text))
    except ValueError:
        raise ValueError(f"a time with its zone, such as {EXAMPLE}") from None


def later(time: datetime, now: datetime) -> datetime:
    """Return a time (UTC) that is later than now. Raises ValueError."""
    if time <= now:
        raise ValueError(f"later than now, {written_time(now.replace(microsecond=0))}")
    return time


def in_utc(time: object) -> datetime:
    """Return a time with a zone as the same time in UTC. Raises ValueError for anything else."""
    try:
        if isinstance(time, datetime) and time.tzinfo is not None:
            return time.astimezone(UTC)
    except OverflowError:  # in the first or last hours of the calendar
        pass
    raise ValueError(f"a time with its zone, such as {EXAMPLE}")


def unix_ms(time: datetime) -> int:
    """Return the Unix time (ms)."""
    return round(1000 * time.timestamp())


def written_time(time: datetime) -> str:
    """Return a time in UTC as TOML writes it."""
    return time.isoformat().replace("+00:00", "Z")
