"""ClientQuotas: the limits of one quota key, and the limiters of the clients with these limits.

A connection looks up the limiter of its user and client-id once, and keeps the limiter until `generation`
changes. So a charge needs no look-up.

A change of the table changes limiters in place: the limit is replaced, the usage stays, and throttle times
that clients were already told stay the same. Look-ups see the new limits at once (`use`). Limiters that no
connection looks up get the new limits a slice at a time (`refresh`); only metrics show them. A client that a
change moves to another level (such as from an entry for its user to one for its client-id) gets a new limiter
there. The old limiter is kept with its usage, and is used again if the change is undone before the limiter
expires. If no default entry has changed, a change concerns only the limiters with the tags of its entries.

Shadow entries, which are counted but not enforced, have limiters of their own, beside the enforced limiters
(`ClientQuotas.shadow`). Shadow limiters are charged in the same way, but no client waits for them. A new
limiter, shadow or enforced, begins with the usage of the limiter of the other kind with the same `tags`, if
that exists. So an entry that changes from shadow to enforced keeps its usage. Throttle times that the shadow
limiter computed were never told, so no client waits for them.

Entries with `scope = "cluster"` have limiters that all brokers share: those of another `ClientQuotas`, in
which each broker looks them up (`ClientQuotas.cluster`). A change of the scope gives a client a new limiter
without usage, like a change of the level.

To add a quota to a broker, add a `ClientQuotas` for its key to `BrokerQuotas`, and a field to `ClientLedger`.

Mutations have one `ClientQuotas` for all brokers of a cluster, because the controller enforces their quota.
Connections look up mutation limiters at each request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from weir.quotas.limiters.budgets import UNLIMITED, Budget
from weir.quotas.limiters.limiter import Limiter
from weir.quotas.limiters.request_time import RequestBudget
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.limiters.smooth import paced
from weir.quotas.mutations import MutationBudget, ShadowMutationBudget
from weir.quotas.registry import SLICE, LimiterRegistry, LimiterTotals
from weir.quotas.table.bounded_names import OVERFLOW, bounded_tags, is_bounded, overflow_tags
from weir.quotas.table.entities import Tags
from weir.quotas.table.limits import NONE, Limit
from weir.quotas.table.options import Pacing, Scope
from weir.quotas.table.quota_table import QuotaKey, QuotaTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

A_co = TypeVar("A_co", bound=Limiter, covariant=True)
B = TypeVar("B", bound=Budget)


class Sharing(Protocol):
    """Shares the limiters of one `ClientQuotas` or `TopicBudgets` with other Weirs (`quotas.sharing`)."""

    def part(self, tags: Tags) -> float:
        """Return the part of the limit, above 0 and at most 1, that this Weir uses now."""

    def created(self, limiter: Limiter, now_ms: int) -> None:
        """Note a new limiter, and charge it with what others have used under its limit."""

    def restored(self, tags: Tags) -> None:
        """Note a new limiter that gets its usage from another process next."""


class ClientQuotas(Generic[A_co]):
    """The limits of one quota key, and its limiters on one broker, or in one cluster."""

    __slots__ = (
        "_all_stale",
        "_changes",
        "_is_shadow",
        "_limits",
        "_make",
        "_note",
        "_registry",
        "_scope",
        "_stale",
        "cluster",
        "key",
        "on_created",
        "paced",
        "shadow",
        "sharing",
    )

    def __init__(
        self, key: QuotaKey, make: Callable[[Tags, float, int], A_co], *, is_shadow: bool = False
    ) -> None:
        """Begin without limits. `make` returns a new limiter from (tags, limit, time in ms). `is_shadow`:
        True for the limiters of shadow entries (counted, not enforced), False for those of enforced entries.
        """
        self.key = key
        self.shadow: ClientQuotas[A_co] | None = None
        """Limits and limiters of the shadow entries (counted, not enforced) of the same quota key, updated
        and expired along with those of this object; None if this object has no shadow quotas.
        """
        self.on_created: Callable[[A_co], None] | None = None
        """Function to call with each new limiter; None for no call."""
        self.cluster: ClientQuotas[A_co] | None = None
        """Quotas of entries with cluster scope, whose limiters all brokers of the cluster share; None if this
        broker shares no limiters.
        """
        self.paced: Callable[[A_co, Pacing], A_co] | None = None
        """Function (limiter, pacing) that returns a limiter with this pacing (the algorithm of a byte rate,
        Kafka's or smooth): the given limiter if it has this pacing already, else a new one with its usage.
        None if limiters of this quota key have no pacing.
        """
        self.sharing: Sharing | None = None
        """Shares the limiters with other Weirs; None if they count the usage at this Weir only."""
        self._scope: Scope | None = None
        """Scope (a budget per broker, or one for the cluster) of the entries that have limiters in this
        object; None for entries of both scopes.
        """
        self._is_shadow = is_shadow
        self._make = make
        self._limits = NONE
        self._changes = 0
        """Number of times that new limits replaced the limits in force."""
        self._stale: set[Tags] = set()
        """Tags of limiters that may still have limits from before the last call of `use`."""
        self._all_stale = False
        """True if any limiter may still have such limits."""
        self._registry: LimiterRegistry[A_co] = LimiterRegistry()
        self._note: Callable[[Tags], None] | None = None
        """Function that adds the tags of a limiter to the list that `watch` has returned; None without."""

    @property
    def generation(self) -> int:
        """A number that grows whenever the result of a former look-up of a limiter may be outdated: another
        limiter applies now, or the limiter has another limit.
        """
        return self._changes + self._registry.generation

    @property
    def forgotten(self) -> LimiterTotals:
        """Sums of the counters of all removed limiters. Metrics add these sums to the counters of the
        existing limiters, so that totals never decrease.
        """
        return self._registry.forgotten

    def share(self, cluster: ClientQuotas[A_co]) -> None:
        """From now on, use the limiters of `cluster`, which all brokers share, for entries with cluster
        scope, enforced and shadow.
        """
        self.cluster, self._scope, cluster._scope = cluster, Scope.BROKER, Scope.CLUSTER
        if self.shadow is not None and cluster.shadow is not None:
            self.shadow.share(cluster.shadow)

    def watch(self) -> list[Tags]:
        """Return a list to which the tags of limiters are added from now on: of each existing limiter, of
        each new one, and of each that is charged for the first time in a window (`quota.window.size.seconds`)
        or more. The caller looks at the listed limiters, and clears the list. One caller only.
        """
        noted: list[Tags] = []
        self._note = noted.append
        for limiters in self._registry.slices():
            for limiter in limiters:
                limiter.watch(self._note)
        return noted

    def budget(self, user: str, client_id: str, now_ms: int) -> A_co | None:
        """Return the limiter of a client, created if missing; None if no limit applies to the client.

        `user` is the principal's name without type; a null `client_id` is passed as "". The caller looks the
        limiter up again when `generation` has changed.
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
        """Return the limiter of a client; None if no limit applies, or no limiter exists yet. Unlike
        `budget`, this method creates no limiter.
        """
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
        """Return the client's limit, with the tags of its limiter; None if no limit applies. If this object
        is for shadow entries, return None also if an enforced entry decides the client's limit.
        """
        limit = self._limits.resolve(user, client_id)
        if limit is None or limit.is_shadow != self._is_shadow:
            return None
        if is_bounded(user, client_id):
            return limit
        return limit._replace(tags=bounded_tags(limit.tags, self._limits.named(user, client_id)))

    def of_group(self, group: str, now_ms: int, part: str = "") -> A_co | None:
        """Return the limiter that the members of a group share, created if missing; None if no limit applies
        to the group. With `part`, return the limiter that counts this part of their usage.
        """
        limit = self._limits.resolve_group(group)
        if limit is None or limit.is_shadow != self._is_shadow:
            return None
        if self.cluster is not None and limit.scope is Scope.CLUSTER:
            return self.cluster.of_group(group, now_ms, part)
        if part:
            limit = limit._replace(tags=limit.tags._replace(client_id=part))
        limiter = self._registry.get(limit.tags)
        return self._new(limit, now_ms) if limiter is None else self._current(limiter, limit)

    @property
    def has_limits(self) -> bool:
        """True if any entry, enforced or shadow, has a limit."""
        return not self._limits.is_empty or (self.shadow is not None and self.shadow.has_limits)

    @property
    def groups(self) -> frozenset[str]:
        """Groups that have a limit, enforced or shadow."""
        return self._limits.groups if self.shadow is None else self._limits.groups | self.shadow.groups

    def of_address(self, ip: str, now_ms: int) -> A_co | None:
        """Return the limiter of connections from the IP address `ip` (canonical form), created if missing;
        None if no limit applies to the address.
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
        """Return the overflow limiter with these tags, created if missing. It has no limit, and counts the
        usage of new clients while the registry is full.
        """
        limiter = self._registry.overflow(tags)
        if limiter is None:
            limiter = self._make(tags, UNLIMITED, now_ms)
            self._registry.put_overflow(limiter)
        return limiter

    def _new(self, limit: Limit, now_ms: int) -> A_co:
        limiter = self._make(limit.tags, self._value(limit), now_ms)
        if self.paced is not None:
            limiter = self.paced(limiter, limit.pacing)
        self._registry.put(limiter)
        if self.on_created is not None:
            self.on_created(limiter)
        if self._note is not None:
            limiter.watch(self._note)
        if self.sharing is not None:
            self.sharing.created(limiter, now_ms)
        return limiter

    def _value(self, limit: Limit) -> float:
        """Return the value of the limit that this Weir uses: a part while it does not hear the others."""
        return limit.value if self.sharing is None else limit.value * self.sharing.part(limit.tags)

    def restored(self, tags: Tags, now_ms: int) -> A_co | None:
        """Return the limiter with these tags, created without usage if missing; None if no entry limits its
        clients, or there is no room for another limiter.
        """
        limit = self._shared(tags)
        limiter = self._registry.get(tags)
        if limiter is None and limit.value != UNLIMITED and not self._registry.is_full(now_ms):
            limiter = self._make(tags, self._value(limit), now_ms)
            if self.paced is not None:
                limiter = self.paced(limiter, limit.pacing)
            self._registry.put(limiter)
            if self._note is not None:
                limiter.watch(self._note)
            if self.sharing is not None:
                self.sharing.restored(tags)
        return limiter

    def slices(self) -> Iterator[list[A_co]]:
        """Yield all limiters in lists whose handling takes about a millisecond, the oldest first."""
        return self._registry.slices()

    def known(self, tags: Tags) -> A_co | None:
        """Return the limiter with these tags; None if there is no such limiter."""
        return self._registry.get(tags)

    def with_tags(self, tags: Tags) -> A_co | None:
        """Return the limiter or overflow limiter with these tags; None if there is no such limiter."""
        limiter = self._registry.get(tags)
        return self._registry.overflow(tags) if limiter is None else limiter

    def use(self, table: QuotaTable) -> None:
        """Make later look-ups of limits use `table`; do nothing if its limits are in force already. The
        caller must run `refresh` after this, which gives the new limits to existing limiters.
        """
        if self.shadow is not None:
            self.shadow.use(table)
        limits = table.shadow_limits(self.key) if self._is_shadow else table.limits(self.key)
        if limits is self._limits:
            return
        if table.is_prepared or not limits.same_as(self._limits):
            self._changes += 1
        changed = limits.changed_tags(self._limits)
        if changed is None:
            self._all_stale = len(self._registry) > 0
        else:
            self._stale.update(tags for tags in changed if self._registry.get(tags) is not None)
        self._limits = limits

    def refresh(self) -> Iterator[None]:
        """Give the limits of the table that was last passed to `use` to limiters that were not looked up
        since; yield after each step of about a millisecond.
        """
        if self.shadow is not None:
            yield from self.shadow.refresh()
        stale, self._stale = self._stale, set()
        if not self._all_stale:
            for number, tags in enumerate(stale, start=1):
                self.apply_part(tags)
                if number % SLICE == 0:
                    yield
        else:
            self._all_stale = False
            for limiters in self._registry.slices():
                for limiter in limiters:
                    if self._registry.has(limiter):
                        self._current(limiter, self._shared(limiter.tags))
                yield

    def apply_part(self, tags: Tags) -> None:
        """Give the limiter with these tags the part of its limit that this Weir uses now (`Sharing.part`)."""
        limiter = self._registry.get(tags)
        if limiter is not None:
            self._current(limiter, self._shared(tags))

    def _shared(self, tags: Tags) -> Limit:
        """Return the present limit of the clients that share these tags. Its value is `UNLIMITED` if no entry
        limits these clients, or if the entry has another scope than the limiters of this object.
        """
        value = self._limits.of(tags)
        pacing, scope = self._limits.options_of(tags)
        if value is None or (self._scope is not None and scope is not self._scope):
            value = UNLIMITED
        return Limit(value, tags, self._is_shadow, pacing, scope)

    def _current(self, limiter: A_co, limit: Limit) -> A_co:  # type: ignore[misc]  # returns its argument
        """Give the limiter the value of `limit`, and the kind (pacing) that `limit` demands. Return the
        limiter, or the new limiter that replaces it because the kind has changed.
        """
        value = self._value(limit)
        if limiter.limit != value:
            limiter.set_limit(value)
        if self.paced is None:
            return limiter
        now_paced = self.paced(limiter, limit.pacing)
        if now_paced is not limiter:
            self._registry.put(now_paced)
            if self._note is not None:
                now_paced.watch(self._note)
        return now_paced

    def expire(self, now_ms: int) -> Iterator[int]:
        """Remove limiters that were not charged for an hour; yield after each step the number of limiters
        removed. Between two steps, of about a millisecond each, these quotas may be used and changed.
        """
        if self.shadow is not None:
            yield from self.shadow.expire(now_ms)
        yield from self._registry.expire(now_ms)

    def __len__(self) -> int:
        """Return the number of limiters, without overflow limiters (those that new clients share while the
        registry of limiters is full).
        """
        return len(self._registry)

    def __iter__(self) -> Iterator[A_co]:
        """Yield all limiters; last the overflow limiters, which new clients share while the registry of
        limiters is full.
        """
        return iter(self._registry)


def byte_rates(
    key: QuotaKey, num_samples: int = NUM_SAMPLES_DEFAULT, window_s: int = WINDOW_S_DEFAULT
) -> ClientQuotas[Budget]:
    """Return new quotas of a byte rate, for produce or fetch (`key`), with no limits configured.
    `num_samples` and `window_s` are Kafka's `quota.window.num` and `quota.window.size.seconds`.
    """
    quotas = _rates(key, Budget, num_samples, window_s)
    for side in (quotas, quotas.shadow):
        if side is not None:
            side.paced = paced
    return quotas


def byte_floors(
    key: QuotaKey, num_samples: int = NUM_SAMPLES_DEFAULT, window_s: int = WINDOW_S_DEFAULT
) -> ClientQuotas[Budget]:
    """Return new floors of a byte rate, like `byte_rates`. Floors are measured by Kafka's sampled rate,
    whatever the pacing.
    """
    return _rates(key, Budget, num_samples, window_s)


def request_times(
    num_samples: int = NUM_SAMPLES_DEFAULT, window_s: int = WINDOW_S_DEFAULT
) -> ClientQuotas[RequestBudget]:
    """Return new quotas of request time, with no limits configured. `num_samples` and `window_s` are Kafka's
    `quota.window.num` and `quota.window.size.seconds`.
    """
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
    """Return new quotas of partition mutations, with no limits configured. `num_samples` and `window_s` are
    Kafka's `controller.quota.window.num` and `controller.quota.window.size.seconds`.
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
    """Set `shadow` as the shadow quotas of `enforced`; return `enforced`. From now on, each new limiter
    begins with the usage of the limiter with the same tags in the other of the two.
    """

    def beginning(other: ClientQuotas[A]) -> Callable[[A], None]:
        def begin(budget: A) -> None:
            known = other.known(budget.tags)
            if known is not None:
                inherit(budget, known)

        return begin

    enforced.shadow = shadow
    enforced.on_created, shadow.on_created = beginning(shadow), beginning(enforced)
    return enforced
