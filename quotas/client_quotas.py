"""Client quotas: whose budget a charge goes to, and how many budgets are remembered.

`ClientQuotas` holds the budgets of one quota key. A session asks it once for the budget of its user and
client-id, and keeps the answer until `generation` says that it may have become another. From then on a charge
costs no lookup.

Changes of the table reach budgets in place: the limit is replaced, what was used stays, and nobody who was
already told to wait waits shorter or longer. A client that a change moves to another level finds a fresh
budget there; the old one is kept with what was used, and found again if the change is undone in time. A
budget that was not charged for an hour is forgotten.

Clients can invent client-ids faster than that. So there are at most `BUDGETS_MAX` budgets that a default
quota has brought about: then those are forgotten in which nothing counts any more and for which nobody waits,
and if all are in use, newcomers share one (`remembered`). Nobody gets rid of what was used that way, nor of a
wait.

Shadow entries have budgets of their own, beside the enforced ones (`ClientQuotas.shadow`): these are charged
as if they were enforced, and make nobody wait. Where one side makes a budget and the other has one of the
same `tags`, it begins with what that has used: so an entry that is changed from shadow to enforced counts at
once what was used in the shadow, though waits that nobody was told are not waited out.

Entries with `scope = "cluster"` have budgets that all brokers share (`ClientQuotas.cluster`): those of one
more `ClientQuotas`, which each broker asks for them. With another scope a client begins with nothing used, as
at another level.

To add a quota to a broker: its key gets a `ClientQuotas` in `BrokerQuotas`, and a field in `ClientLedger`.

Mutations have budgets of their own kind (`mutations`), and one `ClientQuotas` for all brokers of a cluster: a
controller enforces their quota. Sessions look them up request by request.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from quotas.bounded_names import OVERFLOW, bounded_tags, is_long, overflow_tags
from quotas.entities import Tags
from quotas.limiters.budgets import UNLIMITED, Budget
from quotas.limiters.limiter import Limiter
from quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from quotas.limiters.smooth import paced
from quotas.limits import NONE, Limit, Limits
from quotas.mutations import MutationBudget, ShadowMutationBudget
from quotas.options import Pacing, Scope
from quotas.request_time import RequestBudget
from quotas.table import QuotaKey, QuotaTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

IDLE_MS_MAX = 3_600_000
"""How long a budget is kept after its last charge: one hour, as Kafka keeps its sensors."""
BUDGETS_MAX = 100_000
"""Per quota key and broker: 100 to 200 MB. In use within `quota.window.num` windows, so far more than clients
can be connected.
"""
ROOM_PAUSE_MS = 1000
"""Looking through all budgets takes tens of ms: no more often than this."""
ROOM_MAX = BUDGETS_MAX // 10
"""How many are forgotten at a time: all of them would take up to a second."""
SLICE = 250
"""Budgets to look at, or to forget, in one step of an expiry: at most a millisecond's work."""


@dataclass(slots=True)
class Totals:
    """What several budgets have counted, summed."""

    charged: float = 0
    throttled: int = 0
    throttle_ms: int = 0
    refused: int = 0
    """Topics of mutation budgets; nothing else is refused."""

    def add(self, budget: Limiter) -> None:
        """Count one more budget."""
        self.charged += budget.charged
        self.throttled += budget.throttled
        self.throttle_ms += budget.throttle_ms_total
        if isinstance(budget, MutationBudget):
            self.refused += budget.refused


A_co = TypeVar("A_co", bound=Limiter, covariant=True)
B = TypeVar("B", bound=Budget)


class ClientQuotas(Generic[A_co]):
    """The budgets of one quota key on one broker, or in one cluster."""

    __slots__ = (
        "_budgets",
        "_has_overflowed",
        "_is_shadow",
        "_limits",
        "_make",
        "_next_expiry_ms",
        "_next_room_ms",
        "_scope",
        "cluster",
        "forgotten",
        "generation",
        "key",
        "on_created",
        "paced",
        "shadow",
    )

    def __init__(
        self, key: QuotaKey, make: Callable[[Tags, float, int], A_co], *, is_shadow: bool = False
    ) -> None:
        """Begin without any limit; `make` makes a budget from tags, limit and the time in ms. `is_shadow`:
        for clients for which a shadow entry of the table wins.
        """
        self.key = key
        self.shadow: ClientQuotas[A_co] | None = None
        """The budgets of shadow entries, if those are counted; they change and expire with these."""
        self.on_created: Callable[[A_co], None] | None = None
        """Called with each new budget."""
        self.cluster: ClientQuotas[A_co] | None = None
        """The budgets of entries with cluster scope, shared with other brokers; see `share`."""
        self.paced: Callable[[A_co, Pacing], A_co] | None = None
        """Makes a budget one that is held as an entry says; None: there is one way only."""
        self._scope: Scope | None = None
        """The scope of the entries whose budgets these are; None: of any."""
        self._is_shadow = is_shadow
        self.generation = 0
        """Grows whenever a budget (or None) that was looked up earlier may no longer be the right one, or has
        another limit.
        """
        self._make = make
        self._limits = NONE
        self._budgets: dict[Tags, A_co] = {}
        self._next_expiry_ms: float = -math.inf
        """No budget can be idle for long enough before this time."""
        self._next_room_ms: float = -math.inf
        self._has_overflowed = False
        """Some clients were given the budget of `OVERFLOW` since there was room last."""
        self.forgotten = Totals()
        """What the budgets that were forgotten had counted."""

    def share(self, cluster: ClientQuotas[A_co]) -> None:
        """Have clients under entries with cluster scope draw on the budgets of `cluster`, on both sides."""
        self.cluster, self._scope, cluster._scope = cluster, Scope.BROKER, Scope.CLUSTER
        if self.shadow is not None and cluster.shadow is not None:
            self.shadow.share(cluster.shadow)

    def budget(self, user: str, client_id: str, now_ms: int) -> A_co | None:
        """The budget that a client draws on; None if nothing limits it.

        `user` is the name of its principal, without type; a null client-id is the empty one. Keep the answer
        while `generation` stays the same.
        """
        limit = self._limit(user, client_id)
        if limit is None:
            return None
        if self.cluster is not None and limit.scope is Scope.CLUSTER:
            return self.cluster.budget(user, client_id, now_ms)
        budget = self._budgets.get(limit.tags)
        if budget is None and self._is_full(now_ms):
            overflow = overflow_tags(limit.tags, self._limits.named(user, client_id))
            return self._overflow_budget(limit, overflow, now_ms)
        return budget or self._new(limit, now_ms)

    def peek(self, user: str, client_id: str) -> A_co | None:
        """The budget that a client draws on, if there is one already: to look at, for `budget` makes one."""
        limit = self._limit(user, client_id)
        if limit is None:
            return None
        if self.cluster is not None and limit.scope is Scope.CLUSTER:
            return self.cluster.peek(user, client_id)
        budget = self._budgets.get(limit.tags)
        if budget is None and self._has_overflowed:
            return self._budgets.get(overflow_tags(limit.tags, self._limits.named(user, client_id)))
        return budget

    def _limit(self, user: str, client_id: str) -> Limit | None:
        """What applies to a client on this side, with the names under which its budget is remembered."""
        limit = self._limits.resolve(user, client_id)
        if limit is None or limit.is_shadow != self._is_shadow:
            return None
        if is_long(user, client_id):
            return limit._replace(tags=bounded_tags(limit.tags, self._limits.named(user, client_id)))
        return limit

    def of_address(self, ip: str, now_ms: int) -> A_co | None:
        """The budget of the connections from an address, in its canonical form; None if nothing limits it."""
        limit = self._limits.resolve_ip(ip)
        if limit is None or limit.is_shadow != self._is_shadow:
            return None
        tags = limit.tags
        budget = self._budgets.get(tags)
        if budget is None and self._is_full(now_ms):
            overflow = tags if self._limits.names_ip(ip) else Tags("", "", ip=OVERFLOW)
            return self._overflow_budget(limit, overflow, now_ms)
        return budget or self._new(limit, now_ms)

    def _is_full(self, now_ms: int) -> bool:
        return len(self._budgets) >= BUDGETS_MAX and not self._make_room(now_ms)

    def _overflow_budget(self, limit: Limit, overflow: Tags, now_ms: int) -> A_co:
        """The budget that those without one of their own share."""
        self._has_overflowed = self._has_overflowed or overflow != limit.tags
        return self._budgets.get(overflow) or self._new(limit._replace(tags=overflow), now_ms)

    def _new(self, limit: Limit, now_ms: int) -> A_co:
        budget = self._make(limit.tags, limit.value, now_ms)
        if self.paced is not None:
            budget = self.paced(budget, limit.pacing)
        self._budgets[limit.tags] = budget
        if self.on_created is not None:
            self.on_created(budget)
        return budget

    def known(self, tags: Tags) -> A_co | None:
        """The budget of those who share `tags`, if it is remembered."""
        return self._budgets.get(tags)

    def _make_room(self, now_ms: int) -> bool:
        """Forget budgets that are at rest, the oldest first, unless that was done just now; return if there
        is room.
        """
        if now_ms < self._next_room_ms:
            return False
        self._next_room_ms = float(now_ms + ROOM_PAUSE_MS)
        self._forget(list(islice(self._idle(now_ms), ROOM_MAX)))
        return self._has_room()

    def _has_room(self) -> bool:
        """Whether there is room; if so, those who share a budget look for one of their own again."""
        if len(self._budgets) >= BUDGETS_MAX:
            return False
        if self._has_overflowed:
            self._has_overflowed = False
            self.generation += 1
        return True

    def _idle(self, now_ms: int) -> Iterator[Tags]:
        for tags, budget in self._budgets.items():
            if budget.is_idle(now_ms):
                yield tags

    def _forget(self, gone: list[Tags]) -> None:
        for tags in gone:
            self.forgotten.add(self._budgets.pop(tags))
        if gone:
            self.generation += 1

    def update(self, table: QuotaTable) -> None:
        """Use the limits of `table` from now on. Nothing to do if it is in force already."""
        if self.shadow is not None:
            self.shadow.update(table)
        limits = table.shadow_limits(self.key) if self._is_shadow else table.limits(self.key)
        if limits is self._limits:
            return
        if table.is_prepared or not limits.same_as(self._limits):
            self.generation += 1
        had_options, self._limits = self._limits.has_options, limits
        for tags, budget in self._budgets.items():
            value = limits.of(tags)
            budget.set_limit(UNLIMITED if value is None else value)
        if limits.has_options or had_options or self._scope is Scope.CLUSTER:
            self._follow_options(limits)

    def _follow_options(self, limits: Limits) -> None:
        """Have budgets held as their entries say; those of another scope are no limit."""
        for tags, budget in list(self._budgets.items()):
            pacing, scope = limits.options_of(tags)
            if self._scope is not None and scope is not self._scope:
                budget.set_limit(UNLIMITED)
            if self.paced is not None:
                self._budgets[tags] = self.paced(budget, pacing)

    def expire(self, now_ms: int) -> Iterator[int]:
        """Forget the budgets that were not charged for an hour; yield after each step how many it has
        forgotten. Between two steps, of a millisecond or two each, these quotas may be used and changed.
        """
        if self.shadow is not None:
            yield from self.shadow.expire(now_ms)
        if self._has_overflowed and now_ms >= self._next_room_ms:
            yield from self._relieve(now_ms)
        if now_ms >= self._next_expiry_ms:
            yield from self._forget_idle(now_ms)

    def _relieve(self, now_ms: int) -> Iterator[int]:
        """As `_make_room`, in steps."""
        self._next_room_ms = float(now_ms + ROOM_PAUSE_MS)
        wanted = ROOM_MAX
        for budgets in self._slices():
            gone = [budget.tags for budget in budgets if budget.is_idle(now_ms) and self._has(budget)]
            self._forget(gone[:wanted])
            wanted -= len(gone)
            yield 0
            if wanted <= 0:
                break
        self._has_room()
        yield 0

    def _forget_idle(self, now_ms: int) -> Iterator[int]:
        last_ms, oldest_ms = now_ms - IDLE_MS_MAX, now_ms
        for budgets in self._slices():
            idle = [budget.tags for budget in budgets if budget.charged_ms <= last_ms and self._has(budget)]
            self._forget(idle)
            for budget in budgets:
                if last_ms < budget.charged_ms < oldest_ms:
                    oldest_ms = budget.charged_ms
            yield len(idle)
        self._next_expiry_ms = float(oldest_ms + IDLE_MS_MAX)

    def _slices(self) -> Iterator[list[A_co]]:
        """The budgets that there are now, the oldest first; some may be forgotten before their turn comes."""
        budgets = list(reversed(self._budgets.values()))
        while budgets:
            yield budgets[: -SLICE - 1 : -1]
            del budgets[-SLICE:]  # what is forgotten is freed step by step, too

    def _has(self, budget: Limiter) -> bool:
        """Whether it was not forgotten meanwhile."""
        return self._budgets.get(budget.tags) is budget

    def __len__(self) -> int:
        """How many budgets are remembered."""
        return len(self._budgets)

    def __iter__(self) -> Iterator[A_co]:
        """The budgets that are remembered, each with its `tags`."""
        return iter(self._budgets.values())


def byte_rates(
    key: QuotaKey, num_samples: int = NUM_SAMPLES_DEFAULT, window_s: int = WINDOW_S_DEFAULT
) -> ClientQuotas[Budget]:
    """The budgets of a rate in bytes. The numbers are `quota.window.num` and `quota.window.size.seconds`."""
    quotas = _rates(key, Budget, num_samples, window_s)
    for side in (quotas, quotas.shadow):
        if side is not None:
            side.paced = paced
    return quotas


def request_times(
    num_samples: int = NUM_SAMPLES_DEFAULT, window_s: int = WINDOW_S_DEFAULT
) -> ClientQuotas[RequestBudget]:
    """The budgets of request time. The numbers are as for `byte_rates`."""
    return _rates(QuotaKey.REQUEST_PERCENTAGE, RequestBudget, num_samples, window_s)


def _rates(key: QuotaKey, kind: type[B], num_samples: int, window_s: int) -> ClientQuotas[B]:
    def maker(*, is_shadow: bool) -> Callable[[Tags, float, int], B]:
        def make(tags: Tags, limit: float, now_ms: int) -> B:
            return kind(tags, limit, now_ms, num_samples=num_samples, window_s=window_s, is_shadow=is_shadow)

        return make

    shadow = ClientQuotas(key, maker(is_shadow=True), is_shadow=True)
    return _joined(ClientQuotas(key, maker(is_shadow=False)), shadow, kind.inherit)


def mutation_rates(
    num_samples: int = NUM_SAMPLES_DEFAULT, window_s: int = WINDOW_S_DEFAULT
) -> ClientQuotas[MutationBudget]:
    """The budgets of partition mutations. The numbers are `controller.quota.window.num` and
    `controller.quota.window.size.seconds`.
    """

    def maker(kind: type[MutationBudget]) -> Callable[[Tags, float, int], MutationBudget]:
        def make(tags: Tags, limit: float, now_ms: int) -> MutationBudget:
            return kind(tags, limit, now_ms, num_samples=num_samples, window_s=window_s)

        return make

    key = QuotaKey.CONTROLLER_MUTATION_RATE
    shadow = ClientQuotas(key, maker(ShadowMutationBudget), is_shadow=True)
    return _joined(ClientQuotas(key, maker(MutationBudget)), shadow, MutationBudget.inherit)


A = TypeVar("A", bound=Limiter)


def _joined(
    enforced: ClientQuotas[A], shadow: ClientQuotas[A], inherit: Callable[[A, A], None]
) -> ClientQuotas[A]:
    """Have each side begin its budgets with what was used on the other."""

    def beginning(other: ClientQuotas[A]) -> Callable[[A], None]:
        def begin(budget: A) -> None:
            known = other.known(budget.tags)
            if known is not None:
                inherit(budget, known)

        return begin

    enforced.shadow = shadow
    enforced.on_created, shadow.on_created = beginning(shadow), beginning(enforced)
    return enforced
