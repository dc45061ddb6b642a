"""The way of connections to the object that counts the cluster's topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from weir.proxy.handlers.broker_query import Asking, Pending
from weir.quotas.topic_counts import TopicGrowth

Reserve: TypeAlias = Callable[[Sequence[TopicGrowth], bool, Callable[[list[str]], None]], None]
"""Function (topics, validate_only, done) that calls `done` once, on the reactor's thread, with the reason for
each topic that is refused; an empty reason if it is admitted (`TopicCounts.reserve`).
"""
Settle: TypeAlias = Callable[[Mapping[str, int | None]], None]
"""Function that takes the results of changes (`TopicCounts.settle`)."""


class CountedTopics:
    """The prefixes with a limit, and the functions of the object that counts topics. One object per process;
    without prefixes, no request is looked at.
    """

    def __init__(self) -> None:
        self.prefixes: tuple[str, ...] = ()
        """Prefixes with a limit, enforced or in shadow."""
        self.reserve_at: Reserve = _admit_all
        self.settle: Settle = _ignore
        self.is_enforced = False
        """True if a limit is enforced: a request that cannot be read must not be forwarded then."""

    def use(self, prefixes: Iterable[str], *, is_enforced: bool) -> None:
        self.prefixes, self.is_enforced = tuple(prefixes), is_enforced

    def has(self, name: str) -> bool:
        """Return True if a topic of this name counts."""
        return name.startswith(self.prefixes)

    def reserve(self, wanted: Sequence[TopicGrowth], *, validate_only: bool = False) -> Asking[list[str]]:
        """Return the reason for each topic that is refused, in order; empty if it is admitted."""
        if not wanted:
            return []
        pending, reasons = Pending(), []

        def done(found: list[str]) -> None:
            reasons.extend(found)
            pending.done()

        self.reserve_at(wanted, validate_only, done)
        while not pending.is_done:
            yield pending
        return reasons


def _admit_all(
    wanted: Sequence[TopicGrowth], _validate_only: bool, done: Callable[[list[str]], None]
) -> None:
    done([""] * len(wanted))


def _ignore(_sizes: Mapping[str, int | None]) -> None:
    """Do nothing."""
