"""The way of connections to the object that counts the cluster's topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from weir.proxy.handlers.broker_query import Asking, Pending
from weir.quotas.topic_counts import LOST, NEVER, TopicGrowth

if TYPE_CHECKING:
    from weir.proxy.handlers.plan import Context

Reserve: TypeAlias = Callable[[Sequence[TopicGrowth], bool, Callable[[list[str]], None]], None]
"""Function (topics, validate_only, done) that calls `done` once, on the reactor's thread, with the reason for
each topic that is refused; an empty reason if it is admitted (`TopicCounts.reserve`).
"""
Settle: TypeAlias = Callable[[Mapping[str, int | None], int, int], None]
"""Function (results, now_ms, sent_ms) that takes the results of changes (`TopicCounts.settle`)."""


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
        """Return the reason for each topic that is refused, in order; empty if it is admitted. If the
        connection ends before, nothing counts.
        """
        if not wanted:
            return []
        pending, reasons, is_lost = Pending(), [], False

        def done(found: list[str]) -> None:
            reasons.extend(found)
            if is_lost and not validate_only:
                admitted = (growth.name for growth, why in zip(wanted, found, strict=True) if not why)
                self.settle(dict.fromkeys(admitted), 0, 0)
            pending.done()

        self.reserve_at(wanted, validate_only, done)
        try:
            while not pending.is_done:
                yield pending
        except GeneratorExit:
            is_lost = True
            raise
        return reasons

    def settle_held(self, held: set[str], sizes: Mapping[str, int | None], now_ms: int) -> None:
        """Take the results of the changes of one request, and empty `held`, the set of its topics."""
        self.settle(sizes, now_ms, NEVER)
        held.clear()

    @contextmanager
    def held(self, context: Context) -> Iterator[set[str]]:
        """Yield a set for the topics that a request creates or grows: those that are still in it if the
        connection is lost may be created.
        """
        topics = set[str]()
        try:
            yield topics
        except BaseException:  # GeneratorExit, or an answer that cannot be read
            self.settle(dict.fromkeys(topics, LOST), context.now_ms, NEVER)
            raise


def _admit_all(
    wanted: Sequence[TopicGrowth], _validate_only: bool, done: Callable[[list[str]], None]
) -> None:
    done([""] * len(wanted))


def _ignore(_sizes: Mapping[str, int | None], _now_ms: int, _sent_ms: int) -> None:
    """Do nothing."""
