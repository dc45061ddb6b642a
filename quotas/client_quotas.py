"""ClientQuotas: the limits of one quota key, and the limiters that clients under them draw on.

A connection asks once for the limiter of its user and client-id, and keeps the answer until `generation` says
that it may have become another. From then on a charge costs no look-up.

Changes of the table reach limiters in place: the limit is replaced, what was used stays, and nobody who was
already told to wait waits shorter or longer. Look-ups see the new limits at once (`use`). Limiters that
nobody asks for get them a slice at a time (`refresh`): they matter to metrics only. A client that a change
moves to another level finds a fresh limiter there. The old one is kept with what was used, and found again if
the change is undone in time.

Shadow entries have limiters of their own, beside the enforced ones (`ClientQuotas.shadow`). These are charged
in the same way, and make nobody wait. Where one side makes a limiter and the other has one of the same
`tags`, it begins with what that has used: so an entry that is changed from shadow to enforced counts at once
what was used in the shadow. Waits that nobody was told are not waited out.

Entries with `scope = "cluster"` have limiters that all brokers share (`ClientQuotas.cluster`): those of one
more `ClientQuotas`, which each broker asks for them. With another scope a client begins with nothing used, as
at another level.

To add a quota to a broker: its key gets a `ClientQuotas` in `BrokerQuotas`, and a field in `ClientLedger`.

Mutations have one `ClientQuotas` for all brokers of a cluster, because a controller enforces their quota.
Connections look their limiters up request by request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from quotas.limiters.budgets import UNLIMITED, Budget
from quotas.limiters.limiter import Limiter
from quotas.limiters.request_time import RequestBudget
from quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from quotas.limiters.smooth import paced
from quotas.mutations import MutationBudget, ShadowMutationBudget
from quotas.registry import LimiterRegistry, Totals
from quotas.table.bounded_names import OVERFLOW, bounded_tags, is_bounded, overflow_tags
from quotas.table.entities import Tags
from quotas.table.limits import NONE, Limit
from quotas.table.options import Pacing, Scope
from quotas.table.quota_table import QuotaKey, QuotaTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

A_co = TypeVar("A_co", bound=Limiter, covariant=True)
B = TypeVar("B", bound=Budget)


class ClientQuotas(Generic[A_co]):
    """The limits of one quota key, and its limiters on one broker, or in one cluster."""

    __slots__ = (
        "_changes",
        "_is_shadow",
        "_is_stale",
        "_limits",
        "_make",
        "_registry",
        "_scope",
        "cluster",
        "key",
        "on_created",
        "paced",
        "shadow",
    )

    def __init__(
        self, key: QuotaKey, make: Callable[[Tags, float, int], A_co], *, is_shadow: bool = False
    ) -> None:
        """Begin without any limit; `make` makes a limiter from tags, limit and the time in ms. `is_shadow`:
        for clients for which a shadow entry of the table wins.
        """
        self.key = key
        self.shadow: ClientQuotas[A_co] | None = None
        """The limiters of shadow entries, if those are counted; they change and expire with these."""
        self.on_created: Callable[[A_co], None] | None = None
        """Called with each new limiter."""
        self.cluster: ClientQuotas[A_co] | None = None
        """The limiters of entries with cluster scope, shared with other brokers; see `share`."""
        self.paced: Callable[[A_co, Pacing], A_co] | None = None
        """Returns a limiter that is paced as its entry says; None: this quota key has one pacing only."""
        self._scope: Scope | None = None
        """The scope of the entries whose limiters these are; None: of any."""
        self._is_shadow = is_shadow
        self._make = make
        self._limits = NONE
        self._changes = 0
        """Number of times that other limits came into force."""
        self._is_stale = False
        """True if limiters that no client has asked for since may have former limits."""
        self._registry: LimiterRegistry[A_co] = LimiterRegistry()

    @property
    def generation(self) -> int:
        """A number that grows whenever a limiter (or None) that was looked up earlier may no longer be the
        right one, or has another limit.
        """
        return self._changes + self._registry.generation

    @property
    def forgotten(self) -> Totals:
        """The counts of the limiters that were forgotten."""
        return self._registry.forgotten

    def share(self, cluster: ClientQuotas[A_co]) -> None:
        """Have clients under entries with cluster scope draw on the limiters of `cluster`, on both sides."""
        self.cluster, self._scope, cluster._scope = cluster, Scope.BROKER, Scope.CLUSTER
        if self.shadow is not None and cluster.shadow is not None:
            self.shadow.share(cluster.shadow)

    def budget(self, user: str, client_id: str, now_ms: int) -> A_co | None:
        """Return the limiter that a client draws on; None if nothing limits it.

        `user` is the name of its principal, without type; a null client-id is the empty one. Keep the answer
        while `generation` stays the same.
        """
        limit = self._limit(user, client_id)
        if limit is None:
            return None
        if self.cluster is not None and limit.scope is Scope.CLUSTER:
            return self.cluster.budget(user, client_id, now_ms)
        limiter = self._registry.get(limit.tags)
        if limiter is not None:
            return self._current(limiter, limit)
        if self._registry.is_full(now_ms):
            overflow = overflow_tags(limit.tags, self._limits.named(user, client_id), user)
            if overflow != limit.tags:
                return self._overflow(overflow, now_ms)
        return self._new(limit, now_ms)

    def peek(self, user: str, client_id: str) -> A_co | None:
        """Return the limiter that a client draws on, if it exists: `budget` makes one."""
        limit = self._limit(user, client_id)
        if limit is None:
            return None
        if self.cluster is not None and limit.scope is Scope.CLUSTER:
            return self.cluster.peek(user, client_id)
        limiter = self._registry.get(limit.tags)
        if limiter is not None:
            return self._current(limiter, limit)
        return self._registry.overflow(overflow_tags(limit.tags, self._limits.named(user, client_id), user))

    def _limit(self, user: str, client_id: str) -> Limit | None:
        """Return the limit of a client on this side, with the tags under which its limiter is known."""
        limit = self._limits.resolve(user, client_id)
        if limit is None or limit.is_shadow != self._is_shadow:
            return None
        if is_bounded(user, client_id):
            return limit
        return limit._replace(tags=bounded_tags(limit.tags, self._limits.named(user, client_id)))

    def of_address(self, ip: str, now_ms: int) -> A_co | None:
        """Return the limiter of connections from an address, in its canonical form; None if nothing limits
        the address.
        """
        limit = self._limits.resolve_ip(ip)
        if limit is None or limit.is_shadow != self._is_shadow:
            return None
        limiter = self._registry.get(limit.tags)
        if limiter is not None:
            return self._current(limiter, limit)
        if self._registry.is_full(now_ms) and not self._limits.names_ip(ip):
            return self._overflow(Tags("", "", ip=OVERFLOW), now_ms)
        return self._new(limit, now_ms)

    def _overflow(self, tags: Tags, now_ms: int) -> A_co:
        """Return the limiter that counts for clients without room for one of their own: it has no limit."""
        limiter = self._registry.overflow(tags)
        if limiter is None:
            limiter = self._make(tags, UNLIMITED, now_ms)
            self._registry.put_overflow(limiter)
        return limiter

    def _new(self, limit: Limit, now_ms: int) -> A_co:
        limiter = self._make(limit.tags, limit.value, now_ms)
        if self.paced is not None:
            limiter = self.paced(limiter, limit.pacing)
        self._registry.put(limiter)
        if self.on_created is not None:
            self.on_created(limiter)
        return limiter

    def known(self, tags: Tags) -> A_co | None:
        """Return the limiter of those who share `tags`, if it is known."""
        return self._registry.get(tags)

    def use(self, table: QuotaTable) -> None:
        """Look limits up in `table` from now on; then `refresh`. Does nothing if these limits are in force
        already.
        """
        if self.shadow is not None:
            self.shadow.use(table)
        limits = table.shadow_limits(self.key) if self._is_shadow else table.limits(self.key)
        if limits is self._limits:
            return
        if table.is_prepared or not limits.same_as(self._limits):
            self._changes += 1
        self._limits, self._is_stale = limits, True

    def refresh(self) -> Iterator[None]:
        """Give limiters that nobody has asked for since `use` their limits; yield after each step of about a
        millisecond.
        """
        if self.shadow is not None:
            yield from self.shadow.refresh()
        if self._is_stale:
            self._is_stale = False
            for limiters in self._registry.slices():
                for limiter in limiters:
                    if self._registry.has(limiter):
                        self._current(limiter, self._shared(limiter.tags))
                yield

    def update(self, table: QuotaTable) -> None:
        """Use the limits of `table` from now on: all steps at once."""
        self.use(table)
        for _step in self.refresh():
            pass

    def _shared(self, tags: Tags) -> Limit:
        """Return the limit in force for those who share `tags`: none if it is of another scope."""
        value = self._limits.of(tags)
        pacing, scope = self._limits.options_of(tags)
        if value is None or (self._scope is not None and scope is not self._scope):
            value = UNLIMITED
        return Limit(value, tags, self._is_shadow, pacing, scope)

    def _current(self, limiter: A_co, limit: Limit) -> A_co:  # type: ignore[misc]  # returns its argument
        """Return the limiter with the limit in force, paced as that says."""
        if limiter.limit != limit.value:
            limiter.set_limit(limit.value)
        if self.paced is None:
            return limiter
        now_paced = self.paced(limiter, limit.pacing)
        if now_paced is not limiter:
            self._registry.put(now_paced)
        return now_paced

    def expire(self, now_ms: int) -> Iterator[int]:
        """Forget the limiters that were not charged for an hour; yield after each step the number forgotten.
        Between two steps, of about a millisecond each, these quotas may be used and changed.
        """
        if self.shadow is not None:
            yield from self.shadow.expire(now_ms)
        yield from self._registry.expire(now_ms)

    def __len__(self) -> int:
        """Return the number of limiters that are known, without those of the overflow."""
        return len(self._registry)

    def __iter__(self) -> Iterator[A_co]:
        """Yield the limiters that are known, each with its `tags`; those of the overflow last."""
        return iter(self._registry)


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
