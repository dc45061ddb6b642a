"""Partition mutations under a quota (KIP-599): CreateTopics, CreatePartitions, DeleteTopics.

A broker's controller charges each topic, in turn, once it has found that the topic can be had. Weir charges
before the broker sees the request, forwards the topics that it admits, and gives back what the broker then
refuses for reasons of its own; if that makes room, topics that were refused are tried again. What is sure to
fail costs nothing and is forwarded all the same: the broker says best why. So each topic meets what it would
have met at a broker with the quota.

In versions that know error 89, topics are refused while the balance is negative (strict); in older ones
everything is admitted, and who overdraws waits (permissive). `mutated_topics` says what the three APIs cost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import structlog

from protocol.api import ApiKey
from protocol.codec import codec
from protocol.error_codes import ErrorCode
from protocol.errors import EncodeError
from protocol.messages import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, Message
from proxy.rules import inquiries
from proxy.rules.auto_creation import look_for_missed
from proxy.rules.errand import Errand, whole_request
from proxy.rules.inquiries import Asking
from proxy.rules.mutated_topics import REFUSED, Answer, Creation, Deletion, Growth, Mutation, Result, Topic
from proxy.rules.plan import PASS, WAIT, Admission, Caller, Plan, Wait
from proxy.rules.uplift import check, forward, unsupported
from quotas import MutationBudget

log = structlog.get_logger("weir.mutations")

M = TypeVar("M", bound=Message)

STRICT_FROM: Final[Mapping[int, int]] = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.DELETE_TOPICS: 5,
}
"""The first version of each API that knows error 89 (KIP-599)."""
ROUNDS_MAX: Final = 16
"""How often topics are tried again because others have failed."""
_QUOTA: Final = ErrorCode.THROTTLING_QUOTA_EXCEEDED
_NOT_CONTROLLER: Final = ErrorCode.NOT_CONTROLLER
_INVALID: Final = ErrorCode.INVALID_REQUEST
_UNKNOWN: Final = ErrorCode.UNKNOWN_SERVER_ERROR
DONE: Final = frozenset({ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT})
"""What costs what it was charged: of a topic that has timed out nobody knows that it does not come."""


def plan_create_topics(plan: Plan) -> None:
    """A topic costs its partitions."""
    _plan(plan, CreateTopicsRequest, Creation)


def plan_create_partitions(plan: Plan) -> None:
    """A topic costs the partitions that it gets."""
    _plan(plan, CreatePartitionsRequest, Growth)


def plan_delete_topics(plan: Plan) -> None:
    """A topic costs its partitions."""
    _plan(plan, DeleteTopicsRequest, Deletion)


def _plan(plan: Plan, request: type[M], mutation: Callable[[M, Caller], Mutation[M]]) -> None:
    codec_ = codec(request, plan.version)
    flexible = plan.flexible_request
    without_quota = plan.admit

    def admit(caller: Caller, data: bytearray, frame: int, end: int, complete: bool) -> Admission | Wait:
        client_id = caller.client_id(data, frame, end)
        if client_id is None:
            return WAIT
        budget = caller.quotas.mutations.budget(caller.user, client_id, caller.now_ms)
        if budget is None:
            return PASS if without_quota is None else without_quota(caller, data, frame, end, complete)
        asked = whole_request(codec_, data, frame, end, complete, flexible=flexible)
        if asked is None:
            return WAIT
        enforcement = _Enforcement(caller, plan, budget, client_id, mutation(asked, caller))
        return Admission(errand=enforcement.errand())

    plan.admit, plan.whole = admit, True


class _Enforcement(Generic[M]):
    """One request on its way through the quota."""

    def __init__(
        self, caller: Caller, plan: Plan, budget: MutationBudget, client_id: str, mutation: Mutation[M]
    ) -> None:
        self._caller = caller
        self._plan = plan
        self._budget = budget
        self._client_id = client_id
        self._mutation = mutation
        self._strict = plan.version >= STRICT_FROM[plan.api_key]
        self._charge = budget.begin(strict=self._strict)
        self._late = budget.begin(strict=False)
        """For what could not be charged in time."""

    def errand(self) -> Errand:
        """Tell what became of every topic, and have the client wait if it must."""
        try:
            check(self._plan, self._mutation.request)
        except EncodeError as error:
            return unsupported(self._mutation.request, str(error))
        try:
            answer = yield from self._answer()
        except GeneratorExit:  # the connection has ended; what was charged stays charged
            self._finish()
            raise
        throttle_ms = self._finish()
        if throttle_ms:
            self._caller.mute(throttle_ms)
        answer.throttle_time_ms = max(answer.throttle_time_ms, throttle_ms)
        self._say(answer, throttle_ms)
        return answer

    def _say(self, answer: Answer, throttle_ms: int) -> None:
        """Metrics know budgets, this line the clients that share them."""
        results = self._mutation.results(answer)
        log.debug(
            "mutation",
            request=type(self._mutation.request).__name__,
            user=self._caller.user,
            client_id=self._client_id,
            topics=len(results),
            refused=sum(result.error_code == _QUOTA for result in results),
            throttle_ms=throttle_ms,
            tokens=round(self._budget.tokens(self._caller.now_ms), 3),
        )

    def _finish(self) -> int:
        """Count what was taken; return how long the client must wait."""
        now_ms = self._caller.now_ms
        return max(self._charge.finish(now_ms), self._late.finish(now_ms))

    def _answer(self) -> Asking[Answer]:
        """The broker's own answer if it has seen the whole request, else one of several and of refusals."""
        mutation = self._mutation
        yield from look_for_missed(self._caller, self._budget, self._late)
        topics = yield from mutation.topics(strict=self._strict, would_refuse=self._budget.would_refuse)
        told = {one: mutation.failed(one, _INVALID, one.invalid) for one in topics if one.invalid}
        waiting, broker_ms = [topic for topic in topics if topic not in told], 0
        for _round in range(ROUNDS_MAX):
            admitted = [topic for topic in waiting if self._admits(topic)]
            if topics and not admitted:
                break
            answer = yield from forward(self._plan, mutation.part(admitted), mutation.answer)
            settled = yield from self._settled(admitted, mutation.results(answer))
            if len(admitted) == len(topics):
                return answer
            broker_ms = max(broker_ms, answer.throttle_time_ms)
            told.update(settled.told)
            waiting = [topic for topic in waiting if topic not in settled.told]
            if settled.not_controller:
                told.update((topic, mutation.failed(topic, _NOT_CONTROLLER)) for topic in waiting)
                break
            if not (waiting and settled.made_room):
                break
        results = [told.get(topic) or mutation.failed(topic, _QUOTA, REFUSED) for topic in topics]
        merged = mutation.merged({id(result): result for result in results}.values())
        merged.throttle_time_ms = broker_ms
        return merged

    def _admits(self, topic: Topic) -> bool:
        return not topic.cost or self._charge.admit(topic.cost, self._caller.now_ms)

    def _settled(self, topics: Sequence[Topic], results: Sequence[Result]) -> Asking[_Settled]:
        """Compare what was charged with what the broker did."""
        settled = _Settled({}, made_room=False)
        guessed: list[Topic] = []
        result_of = self._mutation.finder(results)
        for topic in topics:
            result = result_of(topic) or self._mutation.failed(topic, _UNKNOWN)
            settled.told[topic] = result
            settled.not_controller = settled.not_controller or result.error_code == _NOT_CONTROLLER
            if result.error_code == ErrorCode.NONE:
                self._mutation.done(topic, result)
            if result.error_code in DONE or result.error_code in topic.charged_errors:
                guessed += [topic] if topic.assumed or not topic.cost else []
            elif topic.cost:
                self._charge.refund(topic.cost, self._caller.now_ms)
                settled.made_room = True
        if guessed:
            yield from self._charge_late(guessed)
        return settled

    def _charge_late(self, topics: Sequence[Topic]) -> Asking[None]:
        """Charge what was done though it was sure to fail, or done without knowing its size.

        A topic that cannot be seen yet is charged when it can.
        """
        caller = self._caller
        names = [topic.name for topic in topics if topic.assumed and topic.name]
        there = (yield from inquiries.topics(caller, names)) if names else inquiries.Topics()
        for topic in topics:
            known = there.by_name.get(topic.name or "") if topic.assumed else None
            if known is None and topic.assumed and topic.name:
                caller.cluster.missing_topics.expect([topic.name], self._budget, caller.now_ms, topic.cost)
            else:
                cost = topic.late_cost if known is None else known.partitions
                self._late.admit(max(cost - topic.cost, 0), caller.now_ms)


@dataclass(slots=True)
class _Settled:
    """What one round has brought."""

    told: dict[Topic, Result]
    made_room: bool
    """Something was given back."""
    not_controller: bool = False
    """The broker cannot do any of this."""
