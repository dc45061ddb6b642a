"""Internal topics of streams groups under a mutation quota (KIP-1071, KIP-599).

While a broker answers StreamsGroupHeartbeat, it creates the missing changelog and repartition topics of the
group's topology, and its controller charges the member's client for these topics. The response says that
internal topics are missing (status 3), but not how many partitions they will have. So Weir charges the
partitions that the topology asks for, at least one per topic, before the broker sees the topology. Weir
refunds them if no topic was missing, and charges further partitions once the topics exist
(`pending_creations`).

If a heartbeat would create topics while the client's balance is negative, Weir answers
COORDINATOR_LOAD_IN_PROGRESS, after which members wait and try again. Other heartbeats are always forwarded,
because they keep the group's members alive. A shadow quota is charged in the same way and delays no client.
"""
# mypyc: skip, because these requests are rare, so compiling would only make the build longer.

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from weir.protocol.pieces import PIECE_ITEMS, Pieces, chosen, each
from weir.proxy.handlers.broker_query import Asking, ask
from weir.proxy.handlers.decisions import WAIT, Decision, Query, Wait
from weir.proxy.handlers.mutations import topic_queries
from weir.proxy.handlers.mutations.auto_creation import charge_created
from weir.proxy.handlers.mutations.charged_mutation import throttle
from weir.proxy.handlers.mutations.decoded_requests import ChargedRequests
from weir.proxy.handlers.mutations.topic_queries import Topics, broker_versions
from weir.proxy.handlers.plan import Context, Plan
from weir.proxy.handlers.uplift.uplift import forward
from weir.quotas import MutationLedger

MISSING_INTERNAL_TOPICS: Final = 3
"""Status code of missing internal topics (`StreamsGroupHeartbeatResponse.Status`)."""
_NAMES: Final = re.compile(r"[a-zA-Z0-9._-]+")

_Subtopology = StreamsGroupHeartbeatRequest.Subtopology | StreamsGroupDescribeResponse.Subtopology


def plan_streams_group_heartbeat(plan: Plan) -> None:
    """Charge the client of a StreamsGroupHeartbeat request for the internal topics that the broker creates
    because of the request.
    """
    requests = ChargedRequests(plan, StreamsGroupHeartbeatRequest)

    def admit(context: Context, data: bytearray, frame: int, end: int, complete: bool) -> Decision | Wait:
        client_id = context.client.client_id(data, frame, end)
        if client_id is None:
            return WAIT
        ledger = context.client.quotas.mutation_ledger(context.client.user, client_id, context.now_ms)
        if ledger is None:
            return requests.pass_on(context, data, frame, end, complete)
        request = requests.read(context, data, frame, end, complete, enforced=ledger.enforced is not None)
        if not isinstance(request, StreamsGroupHeartbeatRequest):
            return request
        if request.member_epoch < 0:  # the member leaves the group
            return requests.pass_on(context, data, frame, end, complete)
        return Query(ChargedHeartbeat(context, plan, ledger, request).query())

    plan.admit, plan.whole = admit, True


class ChargedHeartbeat:
    """One StreamsGroupHeartbeat request and its charges."""

    def __init__(
        self, context: Context, plan: Plan, ledger: MutationLedger, request: StreamsGroupHeartbeatRequest
    ) -> None:
        """Begin to process the heartbeat `request`; nothing is charged yet."""
        self._context = context
        self._plan = plan
        self._ledger = ledger
        self._request = request
        self._late = ledger.begin_late()
        """Charge for partitions whose number Weir learns only after the broker has answered the heartbeat."""
        self._charge = None if ledger.enforced is None else ledger.enforced.begin(strict=False)
        """Charge that is made before the heartbeat is forwarded; None without an enforced quota."""
        self._charged: dict[str, int] = {}
        """Topic → number of partitions charged before the heartbeat was forwarded."""

    def query(self) -> Asking[StreamsGroupHeartbeatResponse]:
        """Forward the heartbeat, and charge the topics that it creates; return the response for the group's
        member, with the throttle time.
        """
        context = self._context
        try:
            answer = yield from self._answer()
        except GeneratorExit:  # the connection has closed; charges stay
            self._finish()
            raise
        throttle_ms = self._finish()
        partitions = int(self._late.taken) + sum(self._charged.values())
        throttle_ms = throttle(context, throttle_ms, partitions, int(answer is None))
        response = self._refusal() if answer is None else answer
        response.throttle_time_ms = max(response.throttle_time_ms, throttle_ms)
        return response

    def _answer(self) -> Asking[StreamsGroupHeartbeatResponse | None]:
        """Forward the heartbeat and return the broker's response. Return None, without forwarding, if the
        client's balance is negative and the broker would create topics.
        """
        context, ledger = self._context, self._ledger
        yield from charge_created(context, ledger, self._late)
        budget = ledger.enforced
        overdrawn = budget is not None and budget.tokens(context.now_ms) < 0
        topology = self._request.topology
        wanted = {} if topology is None else (yield from internal_topics(topology.subtopologies))
        if topology is None and overdrawn:
            wanted = yield from self._described()
        there = (yield from topic_queries.broker_topics(context, wanted)) if wanted else Topics()
        missing = dict((yield from chosen(lambda topic: self._is_missing(topic[0], there), wanted.items())))
        if missing and overdrawn and self._charge is not None:
            self._charge.admit(0, context.now_ms)  # computes the throttle time
            return None
        yield from self._charge_early(missing)
        answer = yield from forward(self._plan, self._request, StreamsGroupHeartbeatResponse)
        details = [
            status.status_detail
            for status in answer.status or ()
            if status.status_code == MISSING_INTERNAL_TOPICS
        ]
        if details:
            yield from self._settle(wanted, there, set(_NAMES.findall(" ".join(details))))
        else:
            yield from self._refund(self._charged)
        return answer

    def _charge_early(self, missing: Mapping[str, int]) -> Pieces[None]:
        """Charge the enforced quota, before the heartbeat is forwarded, for missing topics that the broker
        will create. `missing`: topic → number of partitions.
        """
        if self._charge is not None:
            for number, (name, cost) in enumerate(missing.items()):
                if number % PIECE_ITEMS == PIECE_ITEMS - 1:
                    yield None
                self._charge.admit(cost, self._context.now_ms)
                self._charged[name] = cost

    def _refund(self, names: Iterable[str]) -> Pieces[None]:
        for number, name in enumerate(list(names)):
            if number % PIECE_ITEMS == PIECE_ITEMS - 1:
                yield None
            cost = self._charged.pop(name)
            if self._charge is not None:
                self._charge.refund(cost, self._context.now_ms)

    def _settle(self, wanted: Mapping[str, int], before: Topics, mentioned: set[str]) -> Asking[None]:
        """Charge the missing internal topics that the broker now creates, and add them to the pending
        creations. Topics charged before the heartbeat was forwarded are not charged again; charges of topics
        that the broker does not create are refunded.

        `wanted`: topic → number of partitions; `before`: topics that existed before the heartbeat;
        `mentioned`: words of the response's details, among them the names of missing topics.
        """
        context, expected = self._context, self._context.cluster.pending_creations
        topics = (yield from self._described()) or wanted
        unseen = [name for name in topics if name not in before.by_name]
        there = (yield from topic_queries.broker_topics(context, unseen)) if unseen else Topics()
        yield from self._refund(name for name in self._charged if name not in topics)
        for number, name in enumerate(unseen):
            if number % PIECE_ITEMS == PIECE_ITEMS - 1:
                yield None
            just_made = name in mentioned or name in self._charged
            if (name in there.by_name and not just_made) or expected.expects(name, context.now_ms):
                yield from self._refund([name] if name in self._charged else [])
                continue
            cost = topics[name]
            if name not in self._charged:
                self._late.charge(cost, context.now_ms)
            else:
                self._late.charge_shadow(cost, context.now_ms)
            expected.add([name], self._ledger, context.now_ms, cost)

    def _described(self) -> Asking[dict[str, int]]:
        """Ask the broker for the group's internal topics; return topic → number of partitions. Return an
        empty dict if the broker does not tell the topics.
        """
        spoken = yield from broker_versions(self._context)
        if ApiKey.STREAMS_GROUP_DESCRIBE not in spoken:
            return {}
        request = StreamsGroupDescribeRequest(group_ids=[self._request.group_id])
        answer = yield from ask(request, 0, StreamsGroupDescribeResponse)
        found: dict[str, int] = {}
        for group in answer.groups:
            if group.topology is not None:
                found |= yield from internal_topics(group.topology.subtopologies or ())
        return found

    def _is_missing(self, name: str, there: Topics) -> bool:
        """Return True if a topic is missing: it is not among the existing topics `there`, was not created
        recently, and is not pending.
        """
        cluster, now_ms = self._context.cluster, self._context.now_ms
        return not (
            name in there.by_name
            or cluster.recent_topics.exists(name, now_ms)
            or cluster.pending_creations.expects(name, now_ms)
        )

    def _finish(self) -> int:
        """Record the charges; return the throttle time (ms)."""
        now_ms = self._context.now_ms
        throttle_ms = 0 if self._charge is None else self._charge.finish(now_ms)
        return max(throttle_ms, self._late.finish(now_ms))

    def _refusal(self) -> StreamsGroupHeartbeatResponse:
        return StreamsGroupHeartbeatResponse(
            error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            error_message="The quota on partition mutations is exceeded; internal topics are missing.",
            member_id=self._request.member_id,
            member_epoch=self._request.member_epoch,
        )


def internal_topics(subtopologies: Iterable[_Subtopology]) -> Pieces[dict[str, int]]:
    """Return topic → number of partitions for the internal topics in a topology. The number is 1 for a topic
    that gets the number of partitions of its source topics.
    """
    topics = chain.from_iterable(
        (*subtopology.state_changelog_topics, *subtopology.repartition_source_topics)
        for subtopology in subtopologies
    )
    return dict((yield from each(lambda topic: (topic.name, max(topic.partitions, 1)), topics)))
