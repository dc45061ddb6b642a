"""The quotas in force: one table, and the budgets of each broker's clients.

Byte rates are per broker, as in Kafka: a client has its whole budget at each broker that it talks to, unless
its entry has the scope `cluster`.
Mutations are per cluster, for its controller limits them: one budget, whichever listener they come to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from quotas import BrokerQuotas, QuotaTable
from quotas.client_quotas import mutation_rates
from quotas.cluster_quotas import ClusterQuotas
from quotas.limiters.samples import NUM_SAMPLES_DEFAULT, WINDOW_S_DEFAULT
from quotas.table.options import Pacing


class QuotaRegistry:
    """The quota table and each broker's budgets, by node id; `None` stands for brokers with an unknown id."""

    def __init__(
        self,
        table: QuotaTable,
        num_samples: int = NUM_SAMPLES_DEFAULT,
        window_s: int = WINDOW_S_DEFAULT,
        controller_num_samples: int = NUM_SAMPLES_DEFAULT,
        controller_window_s: int = WINDOW_S_DEFAULT,
        *,
        in_shadow: bool = False,
        pacing: Pacing = Pacing.KAFKA,
        unnamed: str = "",
        request_time_scale: Callable[[int | None], float] = lambda _node_id: 1.0,
    ) -> None:
        """The numbers are `quota.window.num` and `quota.window.size.seconds`, and the same two of
        `controller.quota.window`. `in_shadow`: every entry is a shadow entry, whatever the table says.
        `pacing`: how byte rates are held whose entry does not say. `unnamed`: what clients without a
        client-id are taken to be called. `request_time_scale`: what the estimates of a broker's request time
        are multiplied with.
        """
        self._is_in_shadow = in_shadow
        self._pacing = pacing
        self._unnamed = unnamed
        self._request_time_scale = request_time_scale
        self._table = table
        self._in_force = self._modes(table)
        self._in_force.prepared(QuotaTable())
        self._num_samples = num_samples
        self._window_s = window_s
        self._brokers: dict[int | None, BrokerQuotas] = {}
        self.mutations = mutation_rates(controller_num_samples, controller_window_s)
        """Budgets of partition mutations, shared by all brokers."""
        self.mutations.update(self._in_force)
        self.cluster = ClusterQuotas(num_samples, window_s)
        """The budgets of entries with cluster scope, shared by all brokers."""
        self.cluster.update(self._in_force)
        self.on_update: list[Callable[[QuotaTable], None]] = []
        """Called with each new table."""
        self.changes = 0
        """Number of times that another table came into force."""

    @property
    def table(self) -> QuotaTable:
        """The configured table; it is in force unless everything is in shadow."""
        return self._table

    @property
    def in_force(self) -> QuotaTable:
        """The table in force: enforced and shadow entries."""
        return self._in_force

    def _modes(self, table: QuotaTable) -> QuotaTable:
        return (table.in_shadow() if self._is_in_shadow else table).paced(self._pacing)

    @property
    def brokers(self) -> dict[int | None, BrokerQuotas]:
        """Quotas of every broker that a connection has asked for."""
        return self._brokers

    def of(self, node_id: int | None) -> BrokerQuotas:
        """Return the quotas of one broker, always the same object."""
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
            )
        return quotas

    def prepare(self, table: QuotaTable) -> None:
        """Do the slow part of `update` in advance; callable from any thread, one at a time."""
        self._modes(table).prepared(self._in_force)

    def use(self, table: QuotaTable) -> None:
        """Put another table in force, for open connections too; usage so far still counts. Then `refresh`."""
        self.prepare(table)
        self._table = table
        self._in_force = self._modes(table)
        self.changes += 1
        self.mutations.use(self._in_force)
        self.cluster.use(self._in_force)
        for quotas in self._brokers.values():
            quotas.use(self._in_force)
        for call in self.on_update:
            call(self._in_force)

    def refresh(self) -> Iterator[None]:
        """Give all limiters the limits in force, in steps: as `ClientQuotas.refresh`."""
        for quotas in list(self._brokers.values()):
            yield from quotas.refresh()

    def update(self, table: QuotaTable) -> None:
        """Put another table in force, and give all limiters its limits: all steps at once."""
        self.use(table)
        for _step in self.refresh():
            pass

    def expire(self, now_ms: int) -> Iterator[int]:
        """Forget budgets that were not used for an hour, in steps: as `ClientQuotas.expire`."""
        yield from self.cluster.expire(now_ms)
        for quotas in list(self._brokers.values()):
            yield from quotas.expire(now_ms)
