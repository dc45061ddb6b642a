"""Java's producer at a fixed rate, while a test changes the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.java.worker import run_java

if TYPE_CHECKING:
    from collections.abc import Mapping


class Sent(NamedTuple):
    """A record. Times are on the monotonic clock of this system."""

    sent_s: float
    acked_s: float | None
    """Time of the acknowledgement, or of the error; None for a record without either."""
    error: str | None


class Pace(NamedTuple):
    """A load: numbered records to the partitions of a topic in turns."""

    topic: str
    partitions: int
    records: int
    """Maximum number of records."""
    rate: float
    """Records per second."""
    stop: str
    """Path of a file. When it exists, no further records are sent."""
    size: int = 0
    """Minimum size of a value (bytes)."""


def produce(release: str, config: Mapping[str, str], pace: Pace) -> list[Sent]:
    """Send records whose values are their numbers, behind zeros. Raises ClientError."""
    job = {"config": dict(config), **pace._asdict()}
    found = run_java(release, "paced_worker", "Java's producer", job)
    return [Sent(*each) for each in found]
