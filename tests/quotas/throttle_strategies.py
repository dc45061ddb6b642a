"""Replication throttles that a quota file can say, for Hypothesis."""

from hypothesis import strategies as st

from tests.quotas.strategies import texts
from weir.quotas.replication.throttles import ConfigKey, ReplicationThrottles, ResourceType, Role

roles = st.sampled_from(Role)
node_ids = st.integers(0, 3) | st.integers(0, 2**31 - 1)
rate_keys = st.builds(
    ConfigKey,
    st.just(ResourceType.BROKER),
    st.just("") | node_ids.map(str),
    roles.map(lambda role: role.rate_key),
)
replicas_keys = st.builds(
    ConfigKey, st.just(ResourceType.TOPIC), texts, roles.map(lambda role: role.replicas_key)
)
rates = st.one_of(
    st.integers(0, 5).map(str),
    st.integers(0, 2**63 - 1).map(str),
    st.sampled_from([" 10", "007", "0", "1\t"]),
)
"""Texts that Kafka reads as a rate, also in spellings that it does not write."""
replicas = st.one_of(
    st.sampled_from(["", "*", "none", "0:1, 1:2", " * "]),
    st.lists(st.builds("{}:{}".format, node_ids, node_ids), min_size=1, max_size=4).map(",".join),
)
configured = st.tuples(rate_keys, rates) | st.tuples(replicas_keys, replicas)
throttles = st.lists(configured, max_size=6).map(lambda pairs: ReplicationThrottles(dict(pairs)))
changes = st.lists(
    st.one_of(st.tuples(rate_keys, st.none() | rates), st.tuples(replicas_keys, st.none() | replicas)),
    max_size=6,
).map(lambda pairs: dict(pairs))


def changes_of(throttles: ReplicationThrottles) -> st.SearchStrategy[dict[ConfigKey, str | None]]:
    if not len(throttles):
        return changes

    def value_of(key: ConfigKey) -> st.SearchStrategy[tuple[ConfigKey, str | None]]:
        kind = rates if key.resource_type is ResourceType.BROKER else replicas
        return st.tuples(st.just(key), st.none() | kind)

    some = st.lists(st.sampled_from(list(throttles.values)).flatmap(value_of), max_size=4).map(dict)
    return st.builds(lambda one, other: {**other, **one}, some, changes)
