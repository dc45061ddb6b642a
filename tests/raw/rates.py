"""How fast a client was, and how much it was throttled, between two moments of its run."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import linear_regression, mean
from typing import NamedTuple

from tests.raw.client import Answer

SWING_S = 11.0
"""Time (s) for which Kafka's samples count."""
_STEP_S = 0.05


class Throttling(NamedTuple):
    responses: int
    """How many had a throttle time above zero."""
    total_s: float

    @property
    def mean_ms(self) -> float:
        """Of those above zero."""
        return 1000 * self.total_s / self.responses if self.responses else 0.0


def mean_rate(answers: Sequence[Answer], from_s: float, until_s: float) -> float:
    """Bytes/s: what was delivered, over the time."""
    return sum(answer.charged_bytes for answer in _within(answers, from_s, until_s)) / (until_s - from_s)


def trend_rate(answers: Sequence[Answer], from_s: float, until_s: float) -> float:
    """Bytes/s: the slope of the line that fits best what had been delivered by each moment.

    For rates that swing: where the time begins and ends within a swing counts for little.
    """
    moments, delivered, total, waiting = [], [], 0, iter([*_within(answers, from_s, until_s), None])
    answer = next(waiting)
    for step in range(int((until_s - from_s) / _STEP_S)):
        moment = from_s + step * _STEP_S
        while answer is not None and answer.at_s <= moment:
            total += answer.charged_bytes
            answer = next(waiting)
        moments.append(moment)
        delivered.append(total)
    return linear_regression(moments, delivered).slope


def swing_rate(answers: Sequence[Answer], from_s: float, until_s: float) -> float:
    """Bytes/s: the mean over equally long times that begin at each moment of one swing.

    Clients that send as fast as they may use up Kafka's window at once, and the next one after `SWING_S`. The
    moment within a swing at which a time of 22 s begins decides about 8 % of its mean, and of its trend
    (simulated). The mean over all beginnings does not depend on it.
    """
    begins = [from_s + SWING_S * number / 50 for number in range(50)]
    length_s = until_s - from_s - SWING_S
    return mean(mean_rate(answers, begin, begin + length_s) for begin in begins)


def throttling(answers: Sequence[Answer], from_s: float, until_s: float) -> Throttling:
    """How often and how long a client was told to wait."""
    told_ms = [answer.throttle_ms for answer in _within(answers, from_s, until_s) if answer.throttle_ms > 0]
    return Throttling(len(told_ms), sum(told_ms) / 1000)


def _within(answers: Sequence[Answer], from_s: float, until_s: float) -> list[Answer]:
    return [answer for answer in answers if from_s <= answer.at_s < until_s]
