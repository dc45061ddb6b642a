"""Quota tables that a quota file can say, for Hypothesis."""

from datetime import UTC

from hypothesis import strategies as st

from weir.quotas import DEFAULT, Entity, Prefix, QuotaKey, QuotaTable
from weir.quotas.table.entities import Name
from weir.quotas.table.names import canonical_ip
from weir.quotas.table.options import PLAIN, Options, Pacing, Scope
from weir.quotas.table.quota_table import Quota

CLIENT_KEYS = [
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
]

texts = st.one_of(
    st.sampled_from(
        ["a", "b", "app", "<Default>", '"', "\\", "\n", "\r\n", '"""', "'''", "\x00\x7f\x85\u2028"]
    ),
    st.sampled_from(["[[quota]]", "\n[[quota]]\n", "été 日本 😀", "a\tb", "#", " # ", "shadow", "::1"]),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=8),
).filter(lambda name: name != "<default>")
names: st.SearchStrategy[Name] = st.just(DEFAULT) | texts
client_ids = names | st.builds(Prefix, texts)
client_entities = st.one_of(
    st.builds(Entity, names), st.builds(Entity, st.none(), client_ids), st.builds(Entity, names, client_ids)
)
ips = st.builds(Entity, ip=st.just(DEFAULT) | st.ip_addresses().map(str).map(canonical_ip))
topics = st.builds(Entity, topic=texts)
prefixes = st.builds(Entity, topic_prefix=texts)
COUNT_KEYS = [QuotaKey.TOPICS_MAX, QuotaKey.PARTITIONS_MAX]
STORAGE_KEYS = [QuotaKey.STORED_BYTES_MAX, QuotaKey.USABLE_BYTES_MIN, QuotaKey.OVER_BYTE_RATE]

byte_rates = st.one_of(st.integers(1, 20), st.integers(1, 2**53)).map(float)
mutation_rates = st.one_of(st.integers(1, 20).map(float), st.floats(1e-6, 2.0**63))
percentages = st.one_of(st.integers(1, 200).map(float), st.floats(0.0, 2.0**63, exclude_min=True))
connection_rates = st.integers(1, 2**31 - 1).map(float)


def rates(key: QuotaKey) -> st.SearchStrategy[float]:
    if key is QuotaKey.CONTROLLER_MUTATION_RATE:
        return mutation_rates
    if key is QuotaKey.REQUEST_PERCENTAGE:
        return percentages
    in_ints = [QuotaKey.CONNECTION_CREATION_RATE, *COUNT_KEYS]
    return connection_rates if key in in_ints else byte_rates


quotas: st.SearchStrategy[Quota] = st.one_of(
    st.tuples(client_entities, st.sampled_from(CLIENT_KEYS)),
    st.tuples(topics, st.sampled_from(CLIENT_KEYS[:2] + STORAGE_KEYS)),
    st.tuples(ips, st.just(QuotaKey.CONNECTION_CREATION_RATE)),
    st.tuples(prefixes, st.sampled_from(COUNT_KEYS + STORAGE_KEYS)),
)
configured = quotas.flatmap(lambda quota: st.tuples(st.just(quota), rates(quota[1])))
values: st.SearchStrategy[dict[Quota, float]] = st.lists(configured, max_size=8).map(dict)
untils = st.none() | st.datetimes(timezones=st.just(UTC))
options = st.just(PLAIN) | st.builds(
    Options, st.none() | st.sampled_from(Pacing), st.sampled_from(Scope), untils
)


def optioned(values: dict[Quota, float], said: list[Options]) -> dict[Quota, Options]:
    others = dict.fromkeys(entity for entity, _key in values)
    entities = [entity for entity in others if entity.ip is None and entity.topic_prefix is None]
    of = dict(zip(entities, said, strict=False))
    return {quota: of[quota[0]] for quota in values if quota[0] in of}


tables = st.builds(
    lambda values, shadow, said, said_shadow: QuotaTable(
        values, shadow, optioned(values, said), optioned(shadow, said_shadow)
    ),
    values,
    values,
    st.lists(options, max_size=8),
    st.lists(options, max_size=8),
)
