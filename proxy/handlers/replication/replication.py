"""Replication: the throttles, budgets and topic names that all connections of replication listeners share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from weir.quotas.replication.replication_quotas import ReplicationQuotas

FIRST_VERSION_WITH_IDS: Final = 13
"""First version of Fetch that identifies topics by id instead of name (KIP-516)."""
UNKNOWN_MAX = 100_000  # not Final: mypyc would inline it, and tests set it
"""Maximum number of topic ids without a known name that are remembered."""


class Replication:
    """The replication quotas of one cluster, as connections use them. One per process."""

    __slots__ = ("_names_changed", "_topic_names", "_unknown", "on_unknown_topic", "quotas")

    def __init__(self, quotas: ReplicationQuotas | None = None) -> None:
        """Begin with these quotas; without throttles if `quotas` is None."""
        self.quotas = quotas or ReplicationQuotas()
        self.on_unknown_topic: Callable[[], None] | None = None
        """Function to call when a fetch has a topic id for the first time whose name is not known, while
        replicas are throttled.
        """
        self._topic_names: Mapping[bytes, str] = {}
        self._names_changed = 0
        self._unknown: set[bytes] = set()
        """Topic ids whose names are not known, at most `UNKNOWN_MAX`. Most of them are of topics without
        throttled replicas.
        """

    @property
    def topic_names(self) -> Mapping[bytes, str]:
        """Topic id (16 bytes) → name, for the topics that have throttled replicas."""
        return self._topic_names

    @topic_names.setter
    def topic_names(self, names: Mapping[bytes, str]) -> None:
        if names != self._topic_names:
            self._topic_names = names
            self._names_changed += 1

    @property
    def is_active(self) -> bool:
        """True if any replica is throttled."""
        return bool(self.quotas.throttles.topics)

    @property
    def generation(self) -> int:
        """A number that grows when other replicas are throttled than before, or topics got other ids."""
        return self.quotas.generation + self._names_changed

    def name_of(self, topic: bytes, version: int) -> str:
        """Return the name of a topic, which a fetch of this version identifies by its name in UTF-8 or by its
        id; "" for an unknown id.
        """
        if version < FIRST_VERSION_WITH_IDS:
            return topic.decode("utf-8", "replace")
        name = self._topic_names.get(topic)
        if name is None and topic not in self._unknown:
            if len(self._unknown) >= UNKNOWN_MAX:
                self._unknown.clear()
            self._unknown.add(topic)
            if self.on_unknown_topic is not None:
                self.on_unknown_topic()
        return name or ""
