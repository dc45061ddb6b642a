"""The names of topics whose ids requests and responses have instead (KIP-516).

Produce and Fetch from v13 on, and ShareFetch, identify topics by id. `NamesById` has the names of a cluster's
topics. Weir learns them from responses that pass (`learned_names`). If a request has an id without a known
name, Weir asks the broker for the name on the client's own connection, before it decides about the request
(`asked_names`). So there is one question per topic, not per request, and Weir needs no credentials.

- A topic id belongs to one topic for good: a topic that is deleted and made again has another id, and no
  topic is ever renamed. So a known name is never wrong, and needs no time-out. Names that are not used leave
  when newer ones need their room.
- The broker may give no name: the topic was just deleted, its Metadata is late, or the client may not
  describe it. Weir then asks again after `ASKED_AGAIN_MS`. Until then the topic has no name for this
  principal, if Weir does not learn the name otherwise.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

NAMES_MAX: Final = 100_000
"""Maximum number of names of a cluster's topics that are kept: 20 MB."""
ASKED_AGAIN_MS: Final = 1000
"""Time (ms) for which a principal's requests do not ask again for a name that the broker has not given."""
UNNAMED_MAX: Final = 10_000
"""Maximum number of topic ids without a name that are kept; at more, all are removed."""
ZERO: Final = bytes(16)
"""Topic id of brokers before Kafka 2.8, which have no topic ids."""


class NamesById:
    """Names of a cluster's topics by topic id, in two generations. All connections share the object.

    `recent` has the names that were learned or looked for lately. When it is half of the table, it becomes
    the older generation, and the former older generation is dropped. So the half of `names_max` that was used
    last stays, and a look-up in `recent` costs as much as in any dict.
    """

    __slots__ = ("_half", "_older", "recent")

    def __init__(self, names_max: int = NAMES_MAX) -> None:
        self._half = max(names_max // 2, 1)
        self._older: dict[bytes, bytes] = {}
        self.recent: dict[bytes, bytes] = {}
        """Topic id (16 bytes) → name (UTF-8). Only for reading; another dict takes its place at times."""

    def learn(self, topic_id: bytes, name: bytes) -> None:
        """Add the name of a topic. Ignore the zero id, of brokers without topic ids, and empty names."""
        if topic_id == ZERO or not name:
            return
        if len(self.recent) >= self._half and topic_id not in self.recent:
            self._older, self.recent = self.recent, {}
        self.recent[topic_id] = name

    def name(self, topic_id: bytes) -> bytes | None:
        """Return the name of the topic with this id, and keep the name longer; None if it is unknown."""
        name = self.recent.get(topic_id)
        if name is None and (name := self._older.get(topic_id)) is not None:
            self.learn(topic_id, name)
        return name

    def __len__(self) -> int:
        """Return the number of names that are kept; a name in both generations counts twice."""
        return len(self.recent) + len(self._older)


class UnnamedTopics:
    """Topic ids without a known name, by principal: ACLs decide which names a client may know. All
    connections share the object.
    """

    __slots__ = ("_asked_until_ms", "_met_count", "met")

    def __init__(self) -> None:
        self._asked_until_ms: dict[tuple[str, bytes], int] = {}
        """(Principal, topic id) → time (ms) until which the broker is not asked again for the name."""
        self.met: dict[str, set[bytes]] = {}
        """Principal → ids that were met in bytes that could not wait for the broker's answer. The principal's
        next request asks for their names.
        """
        self._met_count = 0

    def meet(self, user: str, topic_ids: Collection[bytes]) -> None:
        """Keep ids that were met when the broker could not be asked."""
        self._met_count += len(topic_ids)
        if self._met_count > UNNAMED_MAX:
            self.met, self._met_count = {}, len(topic_ids)
        self.met.setdefault(user, set()).update(topic_ids)

    def to_ask(self, user: str, topic_ids: Collection[bytes], now_ms: int) -> set[bytes]:
        """Return the ids for whose names the broker is to be asked now: those of `topic_ids` and those met
        before, without those that it was asked for lately.
        """
        wanted = self.met.pop(user, set()).union(topic_ids)
        if not self.met:
            self._met_count = 0
        wanted.discard(ZERO)
        return {one for one in wanted if self._asked_until_ms.get((user, one), 0) <= now_ms}

    def not_named(self, user: str, topic_ids: Collection[bytes], now_ms: int) -> None:
        """Note that the broker has given no name for these ids."""
        if len(self._asked_until_ms) + len(topic_ids) > UNNAMED_MAX:
            self._asked_until_ms.clear()
        for topic_id in topic_ids:
            self._asked_until_ms[user, topic_id] = now_ms + ASKED_AGAIN_MS
