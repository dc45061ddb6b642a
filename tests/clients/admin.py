"""What an admin client is told to do with topics, and what it said of it: the same for every library."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Step(NamedTuple):
    do: Literal["create", "grow", "delete", "describe"]
    topics: Mapping[str, int]
    """With their partitions; what is deleted or described has no use for the number."""
    retry: bool = True
    """Whether Java's AdminClient may try again after error 89: its retryOnQuotaViolation, true by default."""


class Outcome(NamedTuple):
    errors: Mapping[str, str]
    """Each topic's error, as the library names it; "" if there was none."""
    throttle_ms: Mapping[str, int]
    """What the library tells about waiting, of each topic that was refused for a quota."""
    partitions: Mapping[str, int | str]
    """How many a topic has that was created or described, where the library tells; or the error that says
    why it is not known.
    """
    seconds: float


class Admin(Protocol):
    def run(self, *steps: Step) -> Sequence[Outcome]:
        """Make these calls, one after the other, with one client. Raises ClientError."""
