"""The budgets of all quotas: at every broker, in the cluster, and of the addresses of connections."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias, TypeVar

from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.snapshots.records import Where
from weir.quotas import BrokerQuotas, Budget, MutationBudget, QuotaKey
from weir.quotas.client_quotas import ClientQuotas
from weir.quotas.cluster_quotas import ClusterQuotas
from weir.quotas.connections import ConnectionBudget
from weir.quotas.limiters.limiter import Limiter

A = TypeVar("A", bound=Limiter)

CLUSTER: Final = "cluster"
Counted: TypeAlias = Budget | MutationBudget | ConnectionBudget


def brokers_and_cluster(registry: QuotaRegistry) -> list[tuple[Where, BrokerQuotas | ClusterQuotas]]:
    """Return (broker, its quotas) for each broker, and last the quotas of the cluster."""
    brokers: list[tuple[Where, BrokerQuotas | ClusterQuotas]] = [*registry.brokers.items()]
    return [*brokers, (CLUSTER, registry.cluster)]


def client_quotas(
    registry: QuotaRegistry,
    kinds: Callable[[BrokerQuotas | ClusterQuotas], tuple[ClientQuotas[A], ...]],
    *,
    shadow: bool,
) -> Iterator[tuple[Where, ClientQuotas[A]]]:
    """Yield the quotas that `kinds` selects, enforced or shadow ones, at each broker, then in the cluster."""
    for where, quotas in brokers_and_cluster(registry):
        for kind in kinds(quotas):
            side = side_of(kind, shadow=shadow)
            if side is not None:
                yield where, side


def all_budgets(
    registry: QuotaRegistry, *, shadow: bool
) -> Iterator[tuple[Where, QuotaKey, Iterable[Counted]]]:
    """Yield (broker, quota, its budgets) for each broker, for the cluster, and for the addresses of
    connections at each listener.
    """
    for where, kind in client_quotas(registry, _of_clients, shadow=shadow):
        yield where, kind.key, kind
    for where, quotas in brokers_and_cluster(registry):
        for topics in quotas.topics or ():
            yield where, topics.key, topics.budgets(shadow=shadow)
    mutations = side_of(registry.mutations, shadow=shadow)
    if mutations is not None:
        yield CLUSTER, mutations.key, mutations
    for listener, addresses in registry.connections.of_addresses(shadow=shadow):
        yield listener, addresses.key, addresses


def client_quotas_by_key(
    registry: QuotaRegistry, *, shadow: bool
) -> dict[QuotaKey, dict[Where, ClientQuotas[Limiter]]]:
    """Return the quotas of clients, enforced or shadow ones, by Kafka's key, and by broker or `cluster`."""
    found: dict[QuotaKey, dict[Where, ClientQuotas[Limiter]]] = {}
    for where, quotas in client_quotas(registry, _of_clients, shadow=shadow):
        found.setdefault(quotas.key, {})[where] = quotas
    mutations = side_of(registry.mutations, shadow=shadow)
    if mutations is not None:
        found[mutations.key] = {CLUSTER: mutations}
    return found


def side_of(quotas: ClientQuotas[A], *, shadow: bool) -> ClientQuotas[A] | None:
    """Return the enforced quotas, or with `shadow` the shadow quotas; None if there are no such quotas."""
    return quotas.shadow if shadow else quotas


def _of_clients(quotas: BrokerQuotas | ClusterQuotas) -> tuple[ClientQuotas[Budget], ...]:
    return quotas.limits


def usage_of(rate: float, limit: float) -> float:
    """Return the rate divided by the limit; 0 for the limit 0."""
    return rate / limit if limit else 0.0
