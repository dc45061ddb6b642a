"""Questions to the broker for the names of topic ids, on the client's own connection."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from weir.protocol.errors import ProtocolError
from weir.protocol.pieces import each
from weir.proxy.handlers.broker_query import BrokerQuery
from weir.proxy.handlers.decisions import Query
from weir.proxy.handlers.mutations.topic_queries import ExistingTopic, broker_topics
from weir.proxy.handlers.plan import Context


def ask_first(context: Context, unknown: Collection[bytes]) -> Query | None:
    """Return a query for the names of these topic ids, and of those that the client has met before. None if
    there is nothing to ask now.
    """
    cluster, user = context.cluster, context.client.user
    if not unknown and user not in cluster.unnamed_topics.met:
        return None
    wanted = cluster.unnamed_topics.to_ask(user, unknown, context.now_ms)
    wanted = {topic_id for topic_id in wanted if cluster.names_by_id.name(topic_id) is None}
    return Query(_ask_names(context, wanted), again=True) if wanted else None


def _ask_names(context: Context, wanted: Collection[bytes]) -> BrokerQuery:
    """Ask the broker for the names of topic ids, and learn them. If Weir cannot read the answer, the topics
    have no names for now.
    """
    names = context.cluster.names_by_id

    def learn(found: ExistingTopic) -> None:
        names.learn(found.topic_id.bytes, found.name.encode())

    try:
        there = yield from broker_topics(context, (), [UUID(bytes=topic_id) for topic_id in wanted])
        yield from each(learn, there.by_id.values())
    except ProtocolError:  # the connection lives on: the client has not asked
        pass
    unnamed = [one for one in wanted if names.name(one) is None]
    context.counters.topics_unnamed += len(unnamed)
    context.cluster.unnamed_topics.not_named(context.client.user, unnamed, context.now_ms)
    return None
