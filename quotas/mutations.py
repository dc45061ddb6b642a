"""MutationBudget: partitions that clients create, add and delete, against what they may (KIP-599).

What a request takes goes through a `MutationCharge`, topic by topic in the request's order. While the balance
is negative nothing more is admitted (strict), or everything is, with a throttle time (permissive: for clients
too old to know error 89).

>>> budget = MutationBudget(Tags("alice", ""), limit=5.0, now_ms=0, num_samples=100)
>>> request = budget.begin(strict=True)
>>> request.admit(560, now_ms=0), request.admit(1, now_ms=0), request.throttle_ms(now_ms=0)
(True, False, 12000)

A broker's controller charges what it has found to be possible. Weir charges before the broker has seen the
request, and gives back what the broker then refuses:

>>> request.refund(560, now_ms=0)
>>> request.admit(1, now_ms=0), request.finish(now_ms=0), budget.tokens(now_ms=0)
(True, 0, 499.0)
"""

# mypyc: skip, because only requests that create or delete topics call it, which are rare.
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from quotas.limiters.bucket import TokenBucket
from quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from quotas.limiters.throttle import token_throttle_ms
from quotas.table.entities import Tags

if TYPE_CHECKING:
    from collections.abc import Sequence


class MutationBudget:
    """What those who share `tags` have taken lately, and may take; one object for all their connections."""

    __slots__ = (
        "_bucket",
        "_reported",
        "charged",
        "charged_ms",
        "limit",
        "refused",
        "tags",
        "throttle_ms_total",
        "throttled",
        "throttled_until_ms",
    )

    def __init__(
        self,
        tags: Tags,
        limit: float,
        now_ms: int,
        *,
        num_samples: int = NUM_SAMPLES_DEFAULT,
        window_s: int = WINDOW_S_DEFAULT,
        tokens: float | None = None,
    ) -> None:
        """Begin at `now_ms` with `tokens`, or the whole burst. `limit` is in partitions/s, infinite for none.

        The numbers are `controller.quota.window.num` and `controller.quota.window.size.seconds`.
        """
        self.tags = tags
        self.limit = limit
        self.charged: float = 0.0
        """Partitions charged by the requests that are finished, without what they were given back."""
        self.refused = 0
        """How many topics of finished requests were refused."""
        self.throttled = 0
        """How many requests were answered with a throttle time."""
        self.throttle_ms_total = 0
        """The sum of these throttle times."""
        self.throttled_until_ms = now_ms
        """When the last of them to end will have ended."""
        self.charged_ms = now_ms
        """When the last charge was made, or the budget."""
        self._reported: float = 0.0
        """What of `charged` `delta` has told."""
        self._bucket = TokenBucket(_quota(limit), num_samples, 1000 * window_s, now_ms, tokens)

    def set_limit(self, limit: float) -> None:
        """Replace the limit. What was taken stays; all the time since the bucket was last asked counts at the
        new limit, as in Kafka.
        """
        self.limit = limit
        self._bucket.quota = _quota(limit)

    def inherit(self, other: MutationBudget) -> None:
        """Begin with the balance of `other`; with nothing if it was overdrawn. Its counts stay its own."""
        self._bucket.inherit(other._bucket)

    def begin(self, *, strict: bool) -> MutationCharge:
        """Start charging one request. `strict` refuses topics while the balance is negative."""
        return MutationCharge(self, self._bucket, strict=strict)

    def charge(self, units: float, now_ms: int) -> int:
        """Charge one request of so many partitions, whatever the balance; return how many ms whoever sent it
        must wait.
        """
        request = self.begin(strict=False)
        request.admit(units, now_ms)
        return request.finish(now_ms)

    def delta(self) -> float:
        """Return the partitions that requests finished here were charged since this was last asked."""
        charged, self._reported = self.charged - self._reported, self.charged
        return charged

    def absorb(self, units: float, now_ms: int) -> None:
        """Take the tokens of partitions that were charged elsewhere."""
        self.charged_ms = now_ms
        self._bucket.take(units, now_ms)

    def note_throttle(self, wait_ms: int, now_ms: int) -> None:
        """Count one request's throttle time."""
        self.throttled += 1
        self.throttle_ms_total += wait_ms
        self.throttled_until_ms = max(self.throttled_until_ms, now_ms + wait_ms)

    def would_refuse(self, costs: Sequence[int], now_ms: int) -> bool:
        """Whether a strict request for topics of these costs, in this order, would have one refused; takes
        nothing.
        """
        tokens = self._bucket.peek(now_ms)
        for cost in costs:
            if tokens < 0:
                return True
            tokens -= cost
        return False

    def tokens(self, now_ms: int) -> float:
        """The balance in partitions, infinite without a limit. Changes nothing: for metrics."""
        return math.inf if self.limit == math.inf else self._bucket.peek(now_ms)

    def rate(self, now_ms: int) -> float:
        """Partitions per second that the missing tokens are worth, over the time in which an empty bucket
        fills: above the limit if the balance is negative. Changes nothing.
        """
        return self._bucket.peek_rate(now_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Whether nothing that was charged counts any more, and nobody was told to wait longer than until
        now.
        """
        return self.throttled_until_ms <= now_ms and self._bucket.is_full(now_ms)


class MutationCharge:
    """What one request takes: topic by topic, then one throttle time for its response."""

    __slots__ = ("_bucket", "_budget", "_refused", "_strict", "_taken", "_throttle_ms", "_violated_ms")

    def __init__(self, budget: MutationBudget, bucket: TokenBucket, *, strict: bool) -> None:
        """Begin with nothing taken; see `MutationBudget.begin`."""
        self._budget = budget
        self._bucket = bucket
        self._strict = strict
        self._taken: float = 0.0
        self._refused = 0
        self._throttle_ms = 0
        self._violated_ms = 0

    def admit(self, cost: float, now_ms: int) -> bool:
        """Charge one topic's `cost` (partitions); False: refuse it with THROTTLING_QUOTA_EXCEEDED."""
        bucket = self._bucket
        if bucket.quota is None:
            return True
        if self._strict and self._is_overdrawn(now_ms):
            self._refused += 1
            return False
        bucket.take(cost, now_ms)
        self._taken += cost
        self._budget.charged_ms = now_ms
        if not self._strict:
            self._is_overdrawn(now_ms)
        return True

    def refund(self, cost: float, now_ms: int) -> None:
        """Give back what a topic has cost that the broker refused; never more than this request has taken.

        The wait is forgotten, and so are the refusals: try those topics again. A permissive request for which
        something stays taken is told what is left to wait now, if it had to wait before.
        """
        cost = min(cost, self._taken)
        self._bucket.take(-cost, now_ms)
        self._taken -= cost
        self._refused = 0
        had_to_wait = self._throttle_ms > 0
        self._throttle_ms = 0
        if had_to_wait and self._taken > 0 and not self._strict:
            self._is_overdrawn(now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """The throttle time of a response that leaves now: what is left of the last violation's wait."""
        return max(0, self._throttle_ms - (now_ms - self._violated_ms))

    def finish(self, now_ms: int) -> int:
        """The throttle time, counted in the budget like what was charged and refused. Call it once, last."""
        budget = self._budget
        budget.charged += self._taken
        budget.refused += self._refused
        wait_ms = self.throttle_ms(now_ms)
        if wait_ms:
            budget.note_throttle(wait_ms, now_ms)
        return wait_ms

    def _is_overdrawn(self, now_ms: int) -> bool:
        """Whether the balance is negative; then remember the wait that follows from it."""
        quota, tokens = self._bucket.quota, self._bucket.tokens(now_ms)
        if quota is None or tokens >= 0:
            return False
        self._throttle_ms = token_throttle_ms(tokens, quota)
        self._violated_ms = now_ms
        return True


class ShadowMutationBudget(MutationBudget):
    """A budget that refuses nothing: it counts what would have been refused, and who would have waited.

    Charge it with what was done. What would have been refused costs nothing (strict), nor does what would
    have come later because somebody was told to wait (permissive): so nobody is ever deep in debt. Of waits
    that overlap, `throttle_ms_total` counts the time once.
    """

    __slots__ = ()

    def begin(self, *, strict: bool) -> MutationCharge:
        """Start charging one request."""
        return _ShadowCharge(self, self._bucket, strict=strict)

    def note_throttle(self, wait_ms: int, now_ms: int) -> None:
        """Count the time that one request's wait adds to those before it."""
        before_ms = max(self.throttled_until_ms, now_ms)
        added_ms = max(now_ms + wait_ms - before_ms, 0)
        super().note_throttle(wait_ms, now_ms)
        self.throttle_ms_total += added_ms - wait_ms


class _ShadowCharge(MutationCharge):
    """What one request would have taken."""

    __slots__ = ()

    def admit(self, cost: float, now_ms: int) -> bool:
        """Charge one topic's `cost`, unless the request would have come later."""
        told_to_wait = self._budget.throttled_until_ms > now_ms
        if told_to_wait and not self._strict and not self._taken and self._is_overdrawn(now_ms):
            return False
        return super().admit(cost, now_ms)


class MutationLedger(NamedTuple):
    """The budgets that one client's mutations draw on; one of them at least, but for `NO_LEDGER`. The shadow
    refuses nothing.
    """

    enforced: MutationBudget | None
    shadow: MutationBudget | None = None

    def begin_late(self) -> LateCharge:
        """Start charging for what exists already."""
        return LateCharge(self)


NO_LEDGER: Final = MutationLedger(None)
"""Of a client whose mutations nothing limits, but somebody counts."""


class LateCharge:
    """What exists already and is to be paid for: charged permissively, to either budget."""

    __slots__ = ("_enforced", "_shadow", "taken")

    def __init__(self, ledger: MutationLedger) -> None:
        """Begin with nothing taken."""
        enforced, shadow = ledger
        self.taken: float = 0
        """Partitions charged so far."""
        self._enforced = None if enforced is None else enforced.begin(strict=False)
        self._shadow = None if shadow is None else shadow.begin(strict=False)

    def charge(self, cost: float, now_ms: int) -> None:
        """Charge `cost` partitions."""
        self.taken += cost
        if self._enforced is not None:
            self._enforced.admit(cost, now_ms)
        self.charge_shadow(cost, now_ms)

    def charge_shadow(self, cost: float, now_ms: int) -> None:
        """Charge `cost` partitions to the shadow budget alone: the enforced one was charged in time."""
        if self._shadow is not None:
            self._shadow.admit(cost, now_ms)

    def finish(self, now_ms: int) -> int:
        """The throttle time of the enforced budget; both count theirs. Call it once, last."""
        if self._shadow is not None:
            self._shadow.finish(now_ms)
        return 0 if self._enforced is None else self._enforced.finish(now_ms)


def _quota(limit: float) -> float | None:
    return None if limit == math.inf else limit
