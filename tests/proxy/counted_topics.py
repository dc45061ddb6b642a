"""Topics that count, without a supervisor."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.kfake.controller import Policy
from weir.proxy.handlers.plans import Plans
from weir.quotas import Entity, QuotaKey, QuotaTable
from weir.quotas.topic_counts import TopicCounts, TopicGrowth


def limits_of(policy: Policy | None) -> QuotaTable:
    if policy is None:
        return QuotaTable()
    entity = Entity(topic_prefix=policy.prefix)
    limits = {QuotaKey.TOPICS_MAX: policy.topics_max, QuotaKey.PARTITIONS_MAX: policy.partitions_max}
    return QuotaTable({(entity, key): value for key, value in limits.items()})


def count_topics(plans: Plans, table: QuotaTable) -> TopicCounts:
    """Have connections with these plans count topics, and return what counts them."""
    counts, counted = TopicCounts(), plans.cluster.counted_topics
    counts.use(table)

    def reserve(
        wanted: Sequence[TopicGrowth], validate_only: bool, done: Callable[[list[str]], None]
    ) -> None:
        done(counts.reserve(wanted, 0, validate_only=validate_only))

    counted.reserve_at, counted.settle = reserve, counts.settle
    counted.use(counts.prefixes, is_enforced=counts.is_enforced)
    return counts
