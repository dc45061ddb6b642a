"""The quotas in force: one table, and the budgets of each broker's clients.

Byte rates are per broker, as in Kafka: a client has its whole budget at each broker, unless its entry has the
scope `cluster`. Mutation rates are per cluster, because the controller limits them: a client has one budget,
through whichever listener its requests arrive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

from weir.quotas import BrokerQuotas, QuotaTable
from weir.quotas.client_quotas import mutation_rates
from weir.quotas.cluster_quotas import ClusterQuotas
from weir.quotas.connections import CONNECTION_RATES, ConnectionQuotas
from weir.quotas.handover import AnyQuotas, CarriedQuotas, Quotas, QuotasName, UsedUnits, absorb, used
from weir.quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from weir.quotas.replication.replication_quotas import REPLICATION_RATES, ReplicationQuotas, role_of
from weir.quotas.table.options import Pacing
from weir.quotas.table.quota_kind import KINDS
from weir.quotas.topics import TopicBudgets, TopicQuotas

EXPIRY_S: Final = 30.0
"""Time (s) between two removals of idle budgets; Kafka checks for idle sensors as often."""


class QuotaRegistry:
    """The quota table and each broker's budgets, by node id; `None` stands for brokers with an unknown id."""

    def __init__(
        self,
        table: QuotaTable,
        num_samples: int = NUM_SAMPLES_DEFAULT,
        window_s: int = WINDOW_S_DEFAULT,
        *,
        in_shadow: bool = False,
        pacing: Pacing = Pacing.KAFKA,
        unnamed: str = "",
        request_time_scale: Callable[[int | None], float] = lambda _node_id: 1.0,
        connections: ConnectionQuotas | None = None,
        replication: ReplicationQuotas | None = None,
    ) -> None:
        """Begin with `table` in force.

        `num_samples` and `window_s` are Kafka's `quota.window.num` and `quota.window.size.seconds`, and those
        of `controller.quota.window`. With `in_shadow`, every entry is a shadow entry. `pacing` applies to
        byte rates whose entry has no pacing. `unnamed` is the client-id assumed for clients without one.
        `request_time_scale` returns the factor for estimates of a broker's request time, by node id.
        `connections` and `replication` are quotas of connections and replication; None for quotas with
        Kafka's default windows, without rates beside those of `table`.
        """
        self.in_shadow = in_shadow
        """True if every entry is a shadow entry. After a change, call `use` with the table."""
        self._pacing = pacing
        self._unnamed = unnamed
        self._request_time_scale = request_time_scale
        self.derive: Callable[[QuotaTable], QuotaTable] = lambda table: table
        """Function that adds rates to the configured ones, such as those of storage budgets that are over.
        After its results have changed, call `use` with the table. Called from any thread.
        """
        self._table = self._derived = table
        self._prepared: tuple[QuotaTable, QuotaTable] | None = None
        """The table of the latest `prepare`, and the one that was derived from it, until `use`."""
        self._in_force = self._modes(table)
        self._in_force.prepared()
        self._num_samples = num_samples
        self._window_s = window_s
        self.sample_ms: Final = 1000 * window_s
        """Length (ms) of a sample. A limiter that was charged is noted in the list of `ClientQuotas.watch`
        after this time at the latest.
        """
        self._brokers: dict[int | None, BrokerQuotas] = {}
        self._by_name: dict[QuotasName, CarriedQuotas] = {}
        """All quotas by their names, as of `_named_stamp`."""
        self._named_stamp = UNSEEN
        self.memory_ms: Final = 1000 * num_samples * window_s
        """Time (ms) for which a charge counts; for one that was throttled, after the end of the throttle."""
        self.mutations = mutation_rates(num_samples, window_s)
        """Budgets of partition mutations, shared by all brokers."""
        self.mutations.use(self._in_force)
        self.cluster = ClusterQuotas(num_samples, window_s)
        """Budgets of entries with cluster scope, shared by all brokers."""
        self.cluster.use(self._in_force)
        self.connections: Final = ConnectionQuotas() if connections is None else connections
        """Rates of new connections, at all listeners."""
        self.connections.update(self._in_force)
        self.replication: Final = ReplicationQuotas() if replication is None else replication
        """Replication throttles and budgets of all brokers (KIP-73)."""
        self.replication.enforced = not in_shadow
        self.on_update: list[Callable[[QuotaTable], None]] = []
        """Functions to call with each new table."""
        self.changes = 0
        """Number of times that a new table was put in force."""

    @property
    def table(self) -> QuotaTable:
        """The configured table, in which each entry has its configured mode and pacing. `in_force` is the
        table that applies: there, `in_shadow` and the default pacing have been applied to the entries.
        """
        return self._table

    @property
    def derived(self) -> QuotaTable:
        """The configured table with the rates that `derive` has added: the `table` of the workers."""
        return self._derived

    @property
    def in_force(self) -> QuotaTable:
        """The table that limiters apply: the configured and derived entries, enforced or in shadow, with the
        default pacing filled in.
        """
        return self._in_force

    @property
    def stamp(self) -> tuple[int, int]:
        """A value that changes whenever there may be further quotas: with each new broker, listener,
        replicating broker or table.
        """
        return len(self._brokers) + self.connections.number + self.replication.number, self.changes

    def _modes(self, table: QuotaTable) -> QuotaTable:
        return (table.in_shadow() if self.in_shadow else table).paced(self._pacing)

    @property
    def brokers(self) -> dict[int | None, BrokerQuotas]:
        """Budgets of each broker's clients, by node id, for the brokers that `of` was called for."""
        return self._brokers

    def of(self, node_id: int | None) -> BrokerQuotas:
        """Return the budgets of one broker's clients; create them at the first call for the broker."""
        quotas = self._brokers.get(node_id)
        if quotas is None:
            quotas = self._brokers[node_id] = BrokerQuotas.create(
                self._in_force,
                self._num_samples,
                self._window_s,
                self.mutations,
                self._unnamed,
                self._request_time_scale(node_id),
                self.cluster,
                node_id,
            )
        return quotas

    def prepare(self, table: QuotaTable) -> None:
        """Precompute the slow part of `use` for this table, so that `use` is fast. Callable from any thread,
        by one caller at a time.
        """
        self._prepared = table, self._derive(table)

    def _derive(self, table: QuotaTable) -> QuotaTable:
        self._modes(table).prepared(self._in_force)  # first: `derive` changes what this has looked up
        derived = self.derive(table)
        self._modes(derived).prepared(self._in_force)
        derived.delta(self._derived)  # workers get it (`Pool`)
        return derived

    def use(self, table: QuotaTable) -> None:
        """Put another table in force, for open connections too; usage before the change still counts. The
        caller must then run `refresh`.
        """
        prepared, self._prepared = self._prepared, None
        if prepared is None or prepared[0] is not table:
            prepared = table, self._derive(table)
        self._table, self._derived = prepared
        self._in_force = self._modes(self._derived).prepared(self._in_force)
        self.changes += 1
        self.mutations.use(self._in_force)
        self.cluster.use(self._in_force)
        self.connections.update(self._in_force)
        self.replication.enforced = not self.in_shadow
        for quotas in self._brokers.values():
            quotas.use(self._in_force)
        for call in self.on_update:
            call(self._in_force)

    def refresh(self) -> Iterator[None]:
        """Give all existing limiters their limits from the table in force. The work is done in steps, one for
        each item of the iterator; the caller must exhaust the iterator.
        """
        # The supervisor may have absorbed usage of shared budgets only: then it knows no broker.
        yield from self.cluster.refresh()
        yield from self.mutations.refresh()
        for quotas in list(self._brokers.values()):
            yield from quotas.refresh()

    def used(self, now_ms: int) -> Iterator[UsedUnits | None]:
        """Yield what the clients of all brokers have used and still counts, for a process that takes over;
        None after each step.
        """
        for of, quotas in list(self.named()):
            yield from used(quotas, of, now_ms)

    def usage_stamps(self) -> Iterator[tuple[int, float, int]]:
        """Yield (latest time in ms of a charge, units, throttled requests) of slices of all limiters. The
        results are the same ones again if no limiter was charged meanwhile.
        """
        for _of, quotas in list(self.named()):
            for limiters in quotas.slices():
                yield (
                    max(limiter.charged_ms for limiter in limiters),
                    sum(limiter.charged for limiter in limiters),
                    sum(limiter.throttled for limiter in limiters),
                )

    def absorb(self, taken: Iterable[UsedUnits], now_ms: int, *, bounded: bool = False) -> None:
        """Record what clients have used at another process (`used`). With `bounded`, no client waits for more
        than one window because of it.
        """
        for each in taken:
            quotas = self.with_name(each.quotas)
            if quotas is not None:
                absorb(quotas, each, now_ms, bounded=bounded)

    def with_name(self, of: QuotasName) -> CarriedQuotas | None:
        """Return the quotas of this name; those of a broker or listener are created at the first call for it.
        None if nothing has this name.
        """
        node_id, name, _is_shadow = of
        if name in NAMES_AT_BROKERS:
            self.of(node_id)
        elif name in CONNECTION_RATES:
            self.connections.ips(node_id)
        elif name in REPLICATION_RATES and node_id is not None:
            self.replication.budget(role_of(name), node_id)
        if self._named_stamp != self.stamp:
            self._by_name, self._named_stamp = dict(self.named()), self.stamp
        return self._by_name.get(of)

    def shared(self) -> Iterator[tuple[QuotasName, AnyQuotas, float]]:
        """Yield (name, quotas, length of a window or burst in s) of the quotas that several Weirs can share:
        those of the cluster, and those of each broker with a known id.
        """
        for name, quotas in chain(self.named_of_cluster(), self.named_of_brokers()):
            if is_shareable(name):
                counted = self._num_samples if name[1] == "mutations" else self._num_samples - 1
                yield name, quotas, counted * self._window_s

    def named(self) -> Iterator[tuple[QuotasName, CarriedQuotas]]:
        """Yield all quotas of clients, connections and replication, and rates of topics, enforced and shadow,
        by their names.
        """
        yield from self.named_of_cluster()
        yield from self.named_of_brokers()
        yield from self.connections.named()
        yield from self.replication.named()

    def named_of_cluster(self) -> Iterator[tuple[QuotasName, AnyQuotas]]:
        """Yield the quotas that all brokers share: mutations, and entries with cluster scope."""
        yield from _both(None, KINDS[self.mutations.key].limiters, self.mutations)
        for name, shared in zip(BROKER_QUOTAS, self.cluster.sampled, strict=True):
            yield from _both(None, f"{OF_CLUSTER}{name}", shared)
        yield from _topics(None, OF_CLUSTER, self.cluster.topics)

    def named_of_brokers(self) -> Iterator[tuple[QuotasName, AnyQuotas]]:
        """Yield the quotas that each broker has for itself."""
        for node_id, broker in self._brokers.items():
            for name, quotas in zip(BROKER_QUOTAS, broker.sampled, strict=True):
                yield from _both(node_id, name, quotas)
            if broker.topics is not None:
                yield from _topics(node_id, "", broker.topics)

    def expire(self, now_ms: int) -> Iterator[int]:
        """Remove budgets that were not used for an hour. The work is done in steps, one for each item of the
        iterator; the caller must exhaust the iterator.
        """
        yield from self.cluster.expire(now_ms)
        yield from self.mutations.expire(now_ms)
        yield from self.connections.expire(now_ms)
        for quotas in list(self._brokers.values()):
            yield from quotas.expire(now_ms)


UNSEEN: Final = -1, -1
"""A `QuotaRegistry.stamp` of no registry."""
BROKER_QUOTAS: Final = tuple(
    kind.limiters for kind in KINDS.values() if kind.limiters and not kind.is_of_controller
)
"""Names of the quotas of clients that each broker has, in the order of `SampledQuotas`."""
OF_CLUSTER: Final = "cluster "
"""Beginning of the names of quotas that all brokers share, except for mutations."""
TOPIC_RATES: Final = ("topic produce", "topic fetch")
"""Names of the rates of topics that each broker has, in the order of `TopicQuotas`."""
NAMES_AT_BROKERS: Final = (*BROKER_QUOTAS, *TOPIC_RATES)
"""Names of everything that each broker has for itself. All brokers share what has another name, except for
rates of connections and of replication.
"""


def is_shareable(name: QuotasName) -> bool:
    """Return True if several Weirs can share the quotas of this name, also before the broker is known:
    those of the cluster, and those of each broker with a known id.
    """
    node_id, kind, _is_shadow = name
    if kind in NAMES_AT_BROKERS:
        return node_id is not None
    return kind not in CONNECTION_RATES and kind not in REPLICATION_RATES


def _both(node_id: int | None, name: str, quotas: Quotas) -> Iterator[tuple[QuotasName, Quotas]]:
    yield (node_id, name, False), quotas
    if quotas.shadow is not None:
        yield (node_id, name, True), quotas.shadow


def _topics(
    node_id: int | None, prefix: str, topics: TopicQuotas
) -> Iterator[tuple[QuotasName, TopicBudgets]]:
    for name, rates in zip(TOPIC_RATES, topics, strict=True):
        for shadow in (False, True):
            yield (node_id, f"{prefix}{name}", shadow), rates.side(shadow=shadow)
