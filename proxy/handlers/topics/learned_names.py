"""Names of topic ids that are learned from responses which pass.

Clients look up a topic before they use it, so Weir then knows the name without a question of its own. While
no topic has a rate and none is protected, no response is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weir.protocol.api import ApiKey
from weir.protocol.codec import response_type
from weir.protocol.errors import ProtocolError
from weir.protocol.scanning.topic_identities import TopicIdentities, has_identities
from weir.proxy.handlers.decisions import FORWARD, Decision, Forward, Wait
from weir.proxy.handlers.plan import RESPONSE_QUOTA

if TYPE_CHECKING:
    from weir.protocol.messages import Message
    from weir.proxy.handlers.plan import Context, Plan

TAUGHT_BY: Final = frozenset({ApiKey.METADATA, ApiKey.CREATE_TOPICS, ApiKey.DESCRIBE_TOPIC_PARTITIONS})
"""APIs whose responses have names and ids of topics."""


class NameLearner:
    """A `ByteCounter` that learns the names of the topics in one response, and charges nothing."""

    __slots__ = ("_clock", "_scan")
    quota: Final = RESPONSE_QUOTA

    def __init__(self, context: Context, message: type[Message], version: int) -> None:
        """Begin before the response."""
        names = context.cluster.names_by_id
        self._clock = context.clock
        self._scan: TopicIdentities | None = TopicIdentities(message, version, names.recent, names.learn)

    def feed(self, data: bytearray, start: int, stop: int) -> int:
        """Learn from the body's next bytes, `data[start:stop]`, as many elements as the turn allows. Return
        the position behind the bytes that were read. Nothing more is learned from a malformed response.
        """
        if self._scan is None:
            return stop
        try:
            return self._clock.feed(self._scan, data, start, stop)
        except ProtocolError:
            self._scan = None
            return stop

    def charge(self, now_ms: int, *, told: bool = True) -> int:
        """Return 0: nothing is charged."""
        del now_ms, told
        return 0

    def cut(self, now_ms: int) -> None:
        """Do nothing: nothing is charged."""


def plan_learn(plan: Plan, *, always: bool) -> None:
    """Learn names from the responses, while topics have rates; in every case if `always`."""
    message, version, inner = response_type(plan.api_key), plan.broker_version, plan.admit
    if not has_identities(message, version):
        return

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        decision = FORWARD if inner is None else inner(context, data, frame, end, complete)
        if always:
            context.client.forget_parse(plan)
        if not isinstance(decision, Forward) or not (always or context.client.quotas.topics is not None):
            return decision
        return decision.but(response_counter=NameLearner(context, message, version))

    plan.admit = admit
