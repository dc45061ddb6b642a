"""Replication at workers: throttles go down, and the progress of replicas goes up and across."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator

from weir.proxy.handlers.replication.replication import Replication
from weir.proxy.workers.messages import Message, ReplicasSeen, ReplicationThrottled, UnknownTopic
from weir.quotas.replication.replication_quotas import Replica
from weir.quotas.replication.throttles import ReplicationThrottles


class ReplicationLink:
    """A worker's end."""

    def __init__(self, replication: Replication, post: Callable[[Message], None]) -> None:
        """Begin without throttles. `post` sends a message to the supervisor."""
        self._replication = replication
        self._post = post
        self._told: dict[Replica, tuple[int, bool]] = {}
        replication.on_unknown_topic = lambda: post(UnknownTopic())

    def tell(self) -> Iterator[None]:
        """Tell new progress of replicas, in steps of about a millisecond; the caller must exhaust the
        iterator.
        """
        for some in self._replication.quotas.tell(self._told):
            if some:
                self._post(ReplicasSeen(pickle.dumps(some)))
            yield

    def take(self, message: ReplicationThrottled | ReplicasSeen) -> None:
        """Put throttles in force, or note the progress of replicas at other workers."""
        if isinstance(message, ReplicasSeen):
            hear(self._replication, message)
            return
        values, names = pickle.loads(message.pickled)  # noqa: S301  # ours
        self._replication.topic_names = names
        self._replication.quotas.use(ReplicationThrottles(values))


def throttled(replication: Replication) -> ReplicationThrottled:
    """Return the message to workers that puts the present throttles in force."""
    values = dict(replication.quotas.throttles.values)
    return ReplicationThrottled(pickle.dumps((values, dict(replication.topic_names))))


def hear(replication: Replication, message: ReplicasSeen) -> None:
    """Note the progress of replicas at another process."""
    replication.quotas.hear(pickle.loads(message.pickled))  # noqa: S301  # ours


def all_seen(replication: Replication) -> Iterator[ReplicasSeen]:
    """Yield the progress of all replicas, for a worker that begins."""
    for some in replication.quotas.tell({}):
        if some:
            yield ReplicasSeen(pickle.dumps(some))
