"""MutationBudget: Kafka's limit on the partitions that clients create, add and delete (KIP-599).

A `MutationCharge` charges one request, topic by topic in the request's order. While the balance of tokens is
negative, a strict request has its topics refused. A permissive request, sent by a client too old to know
error 89, has all its topics admitted, and its response tells a throttle time.

>>> budget = MutationBudget(Tags("alice", ""), limit=5.0, now_ms=0, num_samples=100)
>>> request = budget.begin(strict=True)
>>> request.admit(560, now_ms=0), request.admit(1, now_ms=0), request.throttle_ms(now_ms=0)
(True, False, 12000)

A broker's controller charges a request after checking it. Weir charges the request before the broker has seen
it, and refunds the topics that the broker then refuses:

>>> request.refund(560, now_ms=0)
>>> request.admit(1, now_ms=0), request.finish(now_ms=0), budget.tokens(now_ms=0)
(True, 0, 499.0)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from weir.quotas.limiters.bucket import TokenBucket
from weir.quotas.limiters.counters import CountingLimiter
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.limiters.throttle import token_throttle_ms
from weir.quotas.table.entities import Tags

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class MutationBudget(CountingLimiter):
    """Balance of partition tokens of the clients that share `tags`; one object for all their connections."""

    __slots__ = (
        "_bucket",
        "_note",
        "refused",
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
        """Begin at `now_ms` with a balance of `tokens` partitions; with the full burst if `tokens` is None.

        `limit` is in partitions/s, infinite for no limit. `num_samples` and `window_s` are Kafka's
        `controller.quota.window.num` and `controller.quota.window.size.seconds`.
        """
        super().__init__(tags, limit, now_ms)  # `charged` counts the partitions of finished requests
        self.refused = 0
        """Number of topics that this budget refused in finished requests, because its balance was negative.
        """
        self.throttled_until_ms = now_ms
        """Time (ms) at which the latest of the told throttle times ends; the creation time if no request was
        throttled.
        """
        self._bucket = TokenBucket(_quota(limit), num_samples, 1000 * window_s, now_ms, tokens)
        self._note: Callable[[Tags], None] | None = None

    def set_limit(self, limit: float) -> None:
        """Replace the limit (partitions/s). The balance stays. The time since the last refill counts at the
        new limit, as in Kafka.
        """
        self.limit = limit
        self._bucket.quota = _quota(limit)

    def inherit(self, other: MutationBudget) -> None:
        """Begin with the balance of the budget `other`, or with 0 if that balance is negative. Counters are
        not copied.
        """
        self._bucket.inherit(other._bucket)

    def begin(self, *, strict: bool) -> MutationCharge:
        """Return a new charge for one request. `strict`: True to refuse topics while the balance is negative;
        False to admit all topics, and only tell a throttle time.
        """
        return MutationCharge(self, self._bucket, strict=strict)

    def charge(self, units: float, now_ms: int) -> int:
        """Charge one request of `units` partitions, whatever the balance; return its throttle time (ms)."""
        request = self.begin(strict=False)
        request.admit(units, now_ms)
        return request.finish(now_ms)

    def watch(self, note: Callable[[Tags], None]) -> None:
        """Call `note` with the tags of this budget, now and at each charge."""
        self._note = note
        note(self.tags)

    def note_charge(self) -> None:
        """Tell the function that was passed to `watch` that this budget was charged."""
        if self._note is not None:
            self._note(self.tags)

    def absorb(self, units: float, now_ms: int) -> None:
        """Take tokens for `units` partitions that were charged elsewhere, such as in another process."""
        self.charged_ms = now_ms
        self.note_charge()
        self._bucket.take(units, now_ms)

    @property
    def restored_max(self) -> float:
        """Number of partitions after which clients wait for one window."""
        return 2 * self._bucket.burst

    def counting(self, now_ms: int) -> list[tuple[int, float]]:
        """Return (time in ms, partitions) of one charge that explains the balance: the missing tokens."""
        missing = self._bucket.missing(now_ms)
        return [(now_ms, missing)] if missing > 0 else []

    def note_throttle(self, wait_ms: int, now_ms: int) -> None:
        """Count a throttled request, which Weir tells at `now_ms` to wait for `wait_ms`."""
        self.throttled += 1
        self.throttle_ms_total += wait_ms
        self.throttled_until_ms = max(self.throttled_until_ms, now_ms + wait_ms)

    def release(self, now_ms: int) -> int:
        """End the throttle when the present limit has refilled the bucket to 0, if that is earlier. Return
        the time (ms) at which it ends.
        """
        wait_ms = token_throttle_ms(self._bucket.peek(now_ms), self.limit)
        self.throttled_until_ms = min(self.throttled_until_ms, now_ms + wait_ms)
        return self.throttled_until_ms

    def would_refuse(self, costs: Sequence[int], now_ms: int) -> bool:
        """Return True if a request for topics of these costs (partitions), in this order, would have a topic
        refused, provided that it is strict: its client knows the error of a refusal. Takes no tokens.
        """
        tokens = self._bucket.peek(now_ms)
        for cost in costs:
            if tokens < 0:
                return True
            tokens -= cost
        return False

    def tokens(self, now_ms: int) -> float:
        """Return the balance (partitions), infinite without a limit, for metrics. Changes nothing."""
        return math.inf if self.limit == math.inf else self._bucket.peek(now_ms)

    def rate(self, now_ms: int) -> float:
        """Return a rate (partitions/s) for metrics, which is above the limit if the balance is negative: the
        number of missing tokens divided by the seconds in which an empty bucket fills. Changes nothing.
        """
        return self._bucket.peek_rate(now_ms)

    def is_idle(self, now_ms: int) -> bool:
        """Return True if the bucket is full and no told throttle time lasts beyond `now_ms`."""
        return self.throttled_until_ms <= now_ms and self._bucket.is_full(now_ms)


class MutationCharge:
    """Charge for one request: `admit` each topic, `refund` topics that the broker refuses, then `finish` once
    for the throttle time of the response.
    """

    __slots__ = ("_bucket", "_budget", "_refused", "_strict", "_taken", "_throttle_ms", "_violated_ms")

    def __init__(self, budget: MutationBudget, bucket: TokenBucket, *, strict: bool) -> None:
        """Begin without charged topics. Callers use `MutationBudget.begin` instead. `strict`: True to refuse
        topics while the balance is negative; False to admit all topics, and only tell a throttle time.
        """
        self._budget = budget
        self._bucket = bucket
        self._strict = strict
        self._taken: float = 0.0
        self._refused = 0
        self._throttle_ms = 0
        self._violated_ms = 0

    def admit(self, cost: float, now_ms: int) -> bool:
        """Charge one topic of `cost` partitions; return True if the topic is admitted. On False nothing was
        charged, and the caller must refuse the topic with THROTTLING_QUOTA_EXCEEDED.
        """
        if self.refuses(now_ms):
            return False
        self.take(cost, now_ms)
        return True

    def refuses(self, now_ms: int) -> bool:
        """Return True, and count a refused topic, if the next topic must be refused."""
        if not self._strict or not self._is_overdrawn(now_ms):
            return False
        self._refused += 1
        return True

    def take(self, cost: float, now_ms: int) -> None:
        """Charge one topic of `cost` partitions, whatever the balance."""
        if self._bucket.quota is None:
            return
        self._bucket.take(cost, now_ms)
        self._taken += cost
        self._budget.charged_ms = now_ms
        if not self._strict:
            self._is_overdrawn(now_ms)

    def refund(self, cost: float, now_ms: int) -> None:
        """Return the `cost` (partitions) of a topic that the broker refused, at most the total charged so
        far.

        The throttle time and the number of refused topics become 0: the caller calls `admit` again for the
        topics that were refused before. If a request that cannot be refused (not strict) was throttled, and
        other topics stay charged, its throttle time is computed again from the new balance.
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
        """Return the throttle time (ms) of a response sent at `now_ms`: the time that is left until the
        balance, as it was when last found negative, is back at 0. Return 0 if the balance was not negative.
        """
        return max(0, self._throttle_ms - (now_ms - self._violated_ms))

    def finish(self, now_ms: int) -> int:
        """Return the throttle time (ms) of the response; add the request's partitions, refused topics and
        throttle time to the budget's counters. Call this once, last.
        """
        budget = self._budget
        budget.note_charge()
        budget.charged += self._taken
        budget.refused += self._refused
        wait_ms = self.throttle_ms(now_ms)
        if wait_ms:
            budget.note_throttle(wait_ms, now_ms)
        return wait_ms

    def _is_overdrawn(self, now_ms: int) -> bool:
        """Return True if the balance of tokens is negative. In that case, also set this request's throttle
        time: the time until the balance is back at 0.
        """
        quota, tokens = self._bucket.quota, self._bucket.tokens(now_ms)
        if quota is None or tokens >= 0:
            return False
        self._throttle_ms = token_throttle_ms(tokens, quota)
        self._violated_ms = now_ms
        return True


class ShadowMutationBudget(MutationBudget):
    """Budget of a shadow entry. Callers ignore its decisions and throttle times; it only counts them.

    Charge it with requests that were carried out. It does not charge topics that it would have refused, or,
    for clients that a budget can only throttle, requests that a throttled client would have sent later. So
    the balance never falls far below 0. `throttle_ms_total` counts overlapping throttle times once.
    """

    __slots__ = ()

    def begin(self, *, strict: bool) -> MutationCharge:
        """Return a new charge for one request; the budget counts refusals, but callers do not act on them.
        `strict`: True to count topics as refused while the balance is negative; False to count only throttle
        times.
        """
        return _ShadowCharge(self, self._bucket, strict=strict)

    def note_throttle(self, wait_ms: int, now_ms: int) -> None:
        """Count a request that would be told at `now_ms` to wait for `wait_ms`; add only the part of the wait
        that is later than all former waits to `throttle_ms_total`.
        """
        before_ms = max(self.throttled_until_ms, now_ms)
        added_ms = max(now_ms + wait_ms - before_ms, 0)
        super().note_throttle(wait_ms, now_ms)
        self.throttle_ms_total += added_ms - wait_ms


class _ShadowCharge(MutationCharge):
    """Charge for one request to a shadow budget."""

    __slots__ = ()

    def admit(self, cost: float, now_ms: int) -> bool:
        """Charge one topic of `cost` partitions; return True if the topic was charged. Two kinds of topics
        are not charged: a topic that a strict charge would refuse, and a topic of a request that its client
        would have sent later if it had been throttled.
        """
        return not self._would_wait(now_ms) and super().admit(cost, now_ms)

    def take(self, cost: float, now_ms: int) -> None:
        """Charge one topic of `cost` partitions, unless its client would have sent the request later."""
        if not self._would_wait(now_ms):
            super().take(cost, now_ms)

    def _would_wait(self, now_ms: int) -> bool:
        told_to_wait = self._budget.throttled_until_ms > now_ms
        return told_to_wait and not self._strict and not self._taken and self._is_overdrawn(now_ms)


class MutationChain(NamedTuple):
    """Budgets of one client: its own, and those of its groups. Equal chains have the same budgets."""

    budgets: tuple[MutationBudget, ...]

    def begin(self, *, strict: bool) -> ChainedCharge:
        """Return a new charge for one request, like `MutationBudget.begin`."""
        return ChainedCharge([budget.begin(strict=strict) for budget in self.budgets])

    def would_refuse(self, costs: Sequence[int], now_ms: int) -> bool:
        """Return True if any budget would refuse a topic of these costs (partitions), in this order."""
        return any(budget.would_refuse(costs, now_ms) for budget in self.budgets)

    def tokens(self, now_ms: int) -> float:
        """Return the lowest balance (partitions)."""
        return min(budget.tokens(now_ms) for budget in self.budgets)


class ChainedCharge:
    """Charge for one request to several budgets, with the methods of `MutationCharge`."""

    __slots__ = ("_charges",)

    def __init__(self, charges: list[MutationCharge]) -> None:
        self._charges = charges

    def admit(self, cost: float, now_ms: int) -> bool:
        """Charge one topic of `cost` partitions to each budget; return True if the topic is admitted. If any
        budget refuses it, charge none.
        """
        refused = [charge.refuses(now_ms) for charge in self._charges]  # each counts its refusals
        if any(refused):
            return False
        for charge in self._charges:
            charge.take(cost, now_ms)
        return True

    def refund(self, cost: float, now_ms: int) -> None:
        """Return the `cost` (partitions) of a topic that the broker refused to each budget."""
        for charge in self._charges:
            charge.refund(cost, now_ms)

    def throttle_ms(self, now_ms: int) -> int:
        """Return the longest throttle time (ms) of a response sent at `now_ms`."""
        return max(charge.throttle_ms(now_ms) for charge in self._charges)

    def finish(self, now_ms: int) -> int:
        """Return the longest throttle time (ms); let each budget count the request. Call this once, last."""
        return max(charge.finish(now_ms) for charge in self._charges)


class MutationLedger(NamedTuple):
    """Mutation budgets of one client: the enforced one, and the one of a shadow entry, which only counts. At
    least one of the two is present, except in `NO_LEDGER`.
    """

    enforced: MutationBudget | MutationChain | None
    """Budget that refuses and throttles; None if no enforced quota applies."""
    shadow: MutationBudget | MutationChain | None = None
    """Budget that counts the mutations and refuses nothing; None if no shadow entry applies."""

    def begin_late(self) -> LateCharge:
        """Return a charge for partitions that are charged only after the broker has created or deleted them.
        It is too late to refuse these partitions; the client can only be throttled.
        """
        return LateCharge(self)


NO_LEDGER: Final = MutationLedger(None)
"""Ledger without budgets, for a client that has no mutation quota: its mutations are charged to nothing, but
usage records count them.
"""


class LateCharge:
    """Charge for partitions that the broker has already created or deleted. The enforced budget and the
    shadow budget of a client are charged, and neither can refuse.
    """

    __slots__ = ("_enforced", "_shadow", "taken")

    def __init__(self, ledger: MutationLedger) -> None:
        """Begin a charge for both budgets of `ledger`, with no partition charged yet."""
        enforced, shadow = ledger
        self.taken: float = 0.0
        """Number of partitions that were charged by calls of `charge`; without those of `charge_shadow`."""
        self._enforced = None if enforced is None else enforced.begin(strict=False)
        self._shadow = None if shadow is None else shadow.begin(strict=False)

    def charge(self, cost: float, now_ms: int) -> None:
        """Charge `cost` partitions to both budgets of the client, the enforced one and the shadow one."""
        self.taken += cost
        if self._enforced is not None:
            self._enforced.admit(cost, now_ms)
        self.charge_shadow(cost, now_ms)

    def charge_shadow(self, cost: float, now_ms: int) -> None:
        """Charge `cost` partitions to the shadow budget alone. The caller has charged the enforced budget
        already, before the request was forwarded.
        """
        if self._shadow is not None:
            self._shadow.admit(cost, now_ms)

    def finish(self, now_ms: int) -> int:
        """End the charge in both budgets, which count their throttle times. Return the throttle time (ms) of
        the enforced budget, 0 without one. Call this once, last.
        """
        if self._shadow is not None:
            self._shadow.finish(now_ms)
        return 0 if self._enforced is None else self._enforced.finish(now_ms)


def _quota(limit: float) -> float | None:
    return None if limit == math.inf else limit
