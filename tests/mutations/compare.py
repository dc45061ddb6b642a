"""Where two sides of a play, or a side and the model, are apart.

When an exchange took place is known from when it was sent to when it was answered; the decision fell in
between. So what a throttle time says, the moment at which the balance is back at zero, is known as an
interval, counted from the moment at which the bucket was last full, an interval too. On a quiet machine it is
some 10 ms wide. Two are as far apart as they must be: not at all if they overlap. A machine that was busy
makes them wider, never the difference larger.

A step that was so late, or took so long, that its decision may have been another one is called disturbed; it
and what follows in its sequence say nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import UUID

from tests.mutations.play import Lane, Played
from tests.mutations.requests import NO_ID, Create, Result
from tests.mutations.sequences import MARGIN_S, Step
from weir.protocol.error_codes import ErrorCode

BOUND_MS: Final = 50.0
_SOME_ID: Final = UUID(int=1)


class Interval(NamedTuple):
    """Seconds, at least and at most."""

    low: float
    high: float

    def apart(self, other: Interval) -> float:
        """How far apart they are at least; 0 if they overlap."""
        return max(0.0, self.low - other.high, other.low - self.high)


def between(one: Played, later: Played) -> Interval:
    """From the decision of one exchange to the decision of a later one, or of the same."""
    if one is later:
        return Interval(0.0, 0.0)
    return Interval(later.sent_s - one.answered_s, later.answered_s - one.sent_s)


def undisturbed(lanes: Sequence[Lane]) -> int:
    """How many steps from the beginning on were played, on every lane, close enough to their time."""
    steps = lanes[0].steps
    for index, step in enumerate(steps):
        full = _full_at(steps, index)
        planned_s = step.at_s - steps[full].at_s
        for lane in lanes:
            low, high = between(lane.played[full], lane.played[index])
            if not planned_s - MARGIN_S < low <= high < planned_s + MARGIN_S:
                return index
    return len(steps)


def _full_at(steps: Sequence[Step], index: int) -> int:
    """The last step up to this one before which the bucket was full."""
    return max(at for at in range(index + 1) if steps[at].expected.full_before)


def back_at_zero(lane: Lane, index: int) -> Interval:
    """From the bucket's being full to the end of the throttle time that a step's answer told."""
    full, played = lane.played[_full_at(lane.steps, index)], lane.played[index]
    throttle_s = played.answer.throttle_ms / 1000
    low, high = between(full, played)
    if played is full:
        high = played.answered_s - played.sent_s
    return Interval(low + throttle_s, high + throttle_s)


def expected_zero(steps: Sequence[Step], index: int) -> Interval | None:
    """The same by the model; None if the step is not throttled."""
    step = steps[index]
    if step.expected.wait_s is None:
        return None
    at_s = step.at_s + step.expected.wait_s - steps[_full_at(steps, index)].at_s
    return Interval(at_s, at_s)


def differences(own: Lane, weir: Lane, steps: int) -> Iterator[str]:
    """Where they are apart, in words, in the first so many steps."""
    for index, step in enumerate(own.steps[:steps]):
        brokers, weirs = own.played[index], weir.played[index]
        about = f"{own.name} step {index} at {step.at_s} s, {step.mutation}:"
        for lane in (own, weir):
            codes = _codes(step, lane.played[index])
            if codes != step.expected.codes:
                yield f"{about} {lane.side} answered {dict(codes)}, the model {dict(step.expected.codes)}"
        if _texts(step, brokers) != _texts(step, weirs):
            yield f"{about} {own.side} answered {brokers.answer}, {weir.side} {weirs.answer}"
        yield from (f"{about} {what}" for what in _throttle_differences(own, weir, index))


def _throttle_differences(own: Lane, weir: Lane, index: int) -> Iterator[str]:
    expected = expected_zero(own.steps, index)
    told = {lane.side: lane.played[index].answer.throttle_ms for lane in (own, weir)}
    if not _has_throttle(own.steps[index]):
        return
    if any(bool(throttle_ms) != (expected is not None) for throttle_ms in told.values()):
        yield f"throttle times {told}, by the model {expected}"
    elif expected is not None:
        intervals = {lane.side: back_at_zero(lane, index) for lane in (own, weir)} | {"model": expected}
        for one in intervals:
            for other in intervals:
                apart_ms = 1000 * intervals[one].apart(intervals[other])
                if one < other and apart_ms > BOUND_MS:
                    yield f"{one} and {other} are {apart_ms:.0f} ms apart: told {told}, {intervals}"


def _has_throttle(step: Step) -> bool:
    first = {"Create": 2, "Grow": 0, "Delete": 1}
    return step.mutation.version >= first[type(step.mutation).__name__]


class Gap(NamedTuple):
    """Weir's less the broker's, ms."""

    told: float
    """Of the throttle times as they were told: who took longer to answer tells a shorter one."""
    zero: float
    """Of the moments when the balance is back at zero, in the middle of what is known of each."""


def gaps(own: Lane, weir: Lane, steps: int) -> Iterator[Gap]:
    for index, step in enumerate(own.steps[:steps]):
        if step.expected.wait_s is not None and _has_throttle(step):
            told = weir.played[index].answer.throttle_ms - own.played[index].answer.throttle_ms
            zero_s = [sum(back_at_zero(lane, index)) / 2 for lane in (own, weir)]
            yield Gap(told, 1000 * (zero_s[1] - zero_s[0]))


def _codes(step: Step, played: Played) -> Counter[tuple[str, int]]:
    in_order = "" not in {topic for topic, _ in step.expected.codes}
    return Counter((one.name or "" if in_order else "", one.error_code) for one in played.answer.results)


def _texts(step: Step, played: Played) -> list[str]:
    """All else that an answer says of its topics, in its order if that is not left to chance."""
    results = [repr(_comparable(step, result)) for result in played.answer.results]
    return results if isinstance(step.mutation, Create) else sorted(results)


def _comparable(step: Step, result: Result) -> Result:
    """Without what may differ: ids, names where it depends on hashes what became of whom, and the text of
    error 89, which brokers leave out and Weir tells.
    """
    message = None if result.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED else result.error_message
    some_id: UUID = NO_ID if result.topic_id == NO_ID else _SOME_ID
    in_order = "" not in {topic for topic, _ in step.expected.codes}
    return replace(result, topic_id=some_id, name=result.name if in_order else "", error_message=message)
