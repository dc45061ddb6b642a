"""Records of the quota topic: what they look like, and that nothing in the topic can do harm."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.work import cost
from tests.interpreted import interpreted
from tests.quotas.strategies import options
from weir.proxy.control.stores import records
from weir.proxy.control.stores.record import ProducerRecord, RecordError
from weir.proxy.control.stores.records import (
    EntityMode,
    StoredQuotas,
    alteration,
    read_key,
    read_value,
    write,
)
from weir.quotas import Entity, QuotaTable
from weir.quotas.table.entities import DEFAULT, Prefix
from weir.quotas.table.options import Options, Pacing, Scope
from weir.quotas.table.quota_entry import least, most
from weir.quotas.table.quota_table import QuotaKey, keys_of

PRODUCE, CONSUME = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
ALICE = Entity(user="alice")

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
named = st.one_of(names, st.just(DEFAULT))
entities = st.one_of(
    st.builds(Entity, user=named),
    st.builds(Entity, client_id=named),
    st.builds(Entity, user=named, client_id=named),
    st.builds(Entity, user=st.one_of(st.none(), named), client_id=st.builds(Prefix, names)),
    st.builds(Entity, ip=named),
    st.builds(Entity, topic=names),
)


def rates_of(key: QuotaKey) -> st.SearchStrategy[float]:
    return st.floats(least(key), float(most(key)))


def some_of(keys: Iterable[QuotaKey]) -> st.SearchStrategy[dict[QuotaKey, float]]:
    return st.fixed_dictionaries({}, optional={key: rates_of(key) for key in keys}).filter(bool)


quotas = some_of(QuotaKey)
tables = st.builds(
    lambda pairs: {(entity, key): rate for entity, keys in pairs for key, rate in keys.items()},
    st.lists(
        entities.flatmap(lambda entity: st.tuples(st.just(entity), some_of(keys_of(entity)))), max_size=6
    ),
)


def test_a_quota_record_is_canonical_json() -> None:
    entity = Entity(user="alice", client_id=DEFAULT)
    assert write(EntityMode(entity, shadow=False), {PRODUCE: 1048576.0}) == ProducerRecord(
        b'{"entity":{"client-id":null,"user":"alice"},"mode":"enforce"}',
        b'{"quotas":{"producer_byte_rate":1048576.0},"version":1}',
    )
    assert write(EntityMode(Entity(client_id=Prefix("etl-")), shadow=True), {}) == ProducerRecord(
        b'{"entity":{"client-id-prefix":"etl-"},"mode":"shadow"}', None
    )


@given(entities, st.booleans(), quotas, options)
def test_a_quota_record_reads_back_as_written(
    entity: Entity, shadow: bool, values: dict[QuotaKey, float], said: Options
) -> None:
    key, value = write(EntityMode(entity, shadow), values, said)
    assert value is not None
    assert read_key(key) == (entity, shadow)
    assert read_value(value) == (values, said)


@pytest.mark.parametrize("option", ['"pacing":"even"', '"scope":"world"', '"pacing":1'])
def test_a_quota_record_with_an_unknown_option_is_refused(option: str) -> None:
    value = f'{{{option},"quotas":{{"producer_byte_rate":1.0}},"version":1}}'.encode()
    with pytest.raises(RecordError, match="none of Weir's"):
        read_value(value)


def test_a_quota_record_refuses_a_name_that_is_no_unicode() -> None:
    with pytest.raises(RecordError, match="rename it"):
        write(EntityMode(Entity(user="a\ud800"), shadow=False), {PRODUCE: 1.0})


@pytest.mark.parametrize(
    "key",
    [
        None,
        b"",
        b"\xff",
        b"alice",
        b"[]",
        b'{"entity":{},"mode":"enforce"}',
        b'{"entity":{"user":""},"mode":"enforce"}',
        b'{"entity":{"user":"a","ip":"::1"},"mode":"enforce"}',
        b'{"entity":{"group":"a","user":"b"},"mode":"enforce"}',
        b'{"entity":{"group":null},"mode":"enforce"}',
        b'{"entity":{"client-id":"a","client-id-prefix":"b"},"mode":"enforce"}',
        b'{"entity":{"client-id-prefix":null},"mode":"enforce"}',
        b'{"entity":{"topic":null},"mode":"enforce"}',
        b'{"entity":{"user":"a"},"mode":"later"}',
        b'{"entity":{"user":"a"},"mode":"enforce","more":1}',
        b'{"entity":{"user":"a"}}',
        b'{"entity":{"user":5},"mode":"enforce"}',
        b"[" * 100_000,
        b'{"entity":' + b'{"a":' * 100_000,
    ],
)
def test_a_foreign_record_key_is_refused(key: bytes | None) -> None:
    with pytest.raises(RecordError):
        read_key(key)


@pytest.mark.parametrize(
    "key",
    [
        b'{"mode":"enforce","entity":{"user":"a"}}',
        b'{"entity": {"user":"a"},"mode":"enforce"}',
        b'{"entity":{"user":"\\u0061"},"mode":"enforce"}',
        b'{"entity":{"user":"b","user":"a"},"mode":"enforce"}',
        b'{"entity":{"user":"a"},"mode":"enforce"}\n',
    ],
)
def test_a_quota_record_key_with_another_spelling_is_refused(key: bytes) -> None:
    """Another one would come back when the record that removes the entity has been compacted away."""
    with pytest.raises(RecordError, match="spelled"):
        read_key(key)
    assert read_key(b'{"entity":{"user":"a"},"mode":"enforce"}') == EntityMode(Entity(user="a"), shadow=False)


@pytest.mark.parametrize("kind", ["user", "client-id", "client-id-prefix", "topic"])
def test_a_quota_record_refuses_a_name_longer_than_a_kafka_string(kind: str) -> None:
    """Records may have a megabyte; and DescribeClientQuotas could tell of no quota at all then."""
    longest = "ö" * 16_383 + "o"
    assert len(longest.encode()) == 32_767
    read_key(msgspec.json.encode({"entity": {kind: longest}, "mode": "enforce"}))
    with pytest.raises(RecordError, match="more than 32767 bytes"):
        read_key(msgspec.json.encode({"entity": {kind: longest + "o"}, "mode": "enforce"}))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "none of Weir's"),
        (b"\xff\xfe", "none of Weir's"),
        (b"1", "none of Weir's"),
        (b'{"version":"1","quotas":{}}', "none of Weir's"),
        (b'{"version":1}', "none of Weir's"),
        (b'{"version":1,"quotas":{"producer_byte_rate":"5"}}', "none of Weir's"),
        (b'{"version":1,"quotas":{"producer_byte_rate":true}}', "none of Weir's"),
        (b'{"version":1,"quotas":{"producer_byte_rate":5},"more":1}', "none of Weir's"),
        (b'{"more":' + b"[" * 100_000, "none of Weir's"),
        (b'{"version":1,"quotas":' + b'{"a":' * 100_000, "none of Weir's"),
        (b'{"version":2,"limits":[]}', "version 2, this Weir knows 1"),
        (b'{"version":1,"quotas":{"byte_rate":5}}', "the quota 'byte_rate'"),
        (b'{"version":1,"quotas":{}}', "outside its bounds"),
        (b'{"version":1,"quotas":{"producer_byte_rate":0}}', "outside its bounds"),
        (b'{"version":1,"quotas":{"producer_byte_rate":-1}}', "outside its bounds"),
        (b'{"version":1,"quotas":{"producer_byte_rate":1e19}}', "outside its bounds"),
        (b'{"version":1,"quotas":{"controller_mutation_rate":1e-9}}', "outside its bounds"),
        (b'{"version":1,"quotas":{"request_percentage":0}}', "outside its bounds"),
        (b'{"version":1,"quotas":{"request_percentage":1e19}}', "outside its bounds"),
        (b'{"version":1,"quotas":{"producer_byte_rate":1e999}}', "none of Weir's"),
        (b'{"version":1,"quotas":{"producer_byte_rate":NaN}}', "none of Weir's"),
    ],
)
def test_a_foreign_record_value_is_refused(value: bytes, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        read_value(value)


@given(st.binary(max_size=60), st.one_of(st.none(), st.binary(max_size=60)))
def test_arbitrary_bytes_in_the_quota_topic_are_refused(key: bytes, value: bytes | None) -> None:
    stored = StoredQuotas()
    with pytest.raises(RecordError):
        stored.apply(key, value)
    with pytest.raises(RecordError):
        read_value(value or b"")
    assert stored.table() == QuotaTable()


@pytest.mark.parametrize(
    ("entity", "key"),
    [
        (ALICE, QuotaKey.CONNECTION_CREATION_RATE),
        (Entity(ip="::1"), PRODUCE),
        (Entity(ip="::1"), QuotaKey.REQUEST_PERCENTAGE),
        (Entity(topic="t"), QuotaKey.CONTROLLER_MUTATION_RATE),
    ],
)
def test_a_quota_record_with_an_impossible_quota_is_refused(entity: Entity, key: QuotaKey) -> None:
    stored = StoredQuotas()
    with pytest.raises(RecordError, match=key.value):
        stored.apply(*write(EntityMode(entity, shadow=False), {key: 5.0}))
    assert stored.table() == QuotaTable()


@pytest.mark.parametrize("entity", [Entity(ip="::1"), Entity(topic_prefix="pay.")], ids=str)
@pytest.mark.parametrize("given", [Options(pacing=Pacing.SMOOTH), Options(scope=Scope.CLUSTER)], ids=str)
def test_a_quota_record_with_an_impossible_option_is_refused(entity: Entity, given: Options) -> None:
    """A snapshot with it could not be read."""
    (key, *_others) = keys_of(entity)
    with pytest.raises(RecordError, match="have no pacing and no scope"):
        StoredQuotas().apply(*write(EntityMode(entity, shadow=False), {key: 5.0}, given))


def test_the_number_of_entities_in_the_quota_topic_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "ENTITIES_MAX", 1)
    stored = StoredQuotas()
    stored.apply(*write(EntityMode(ALICE, shadow=False), {PRODUCE: 1.0}))
    with pytest.raises(RecordError, match="entities already"):
        stored.apply(*write(EntityMode(Entity(user="bob"), shadow=False), {PRODUCE: 1.0}))
    stored.apply(*write(EntityMode(ALICE, shadow=False), {PRODUCE: 2.0}))
    assert stored.table() == QuotaTable({(ALICE, PRODUCE): 2.0})


@interpreted
def test_a_quota_record_costs_the_same_among_more_quotas() -> None:
    costs = []
    for number in (400, 1600):
        stored = StoredQuotas()
        for record in alteration(QuotaTable(), {(Entity(f"user-{n}"), PRODUCE): 1.0 for n in range(number)}):
            stored.apply(*record)
        before = stored.table().prepared()
        assert stored.table() is before

        def change(stored: StoredQuotas = stored, before: QuotaTable = before) -> None:
            stored.apply(*write(EntityMode(Entity("user-7"), shadow=False), {PRODUCE: 2.0}))
            assert stored.table().delta(before).number == 1

        costs.append(cost(change))
    assert costs[0].steps == costs[1].steps
    assert costs[1].peak_bytes < costs[0].peak_bytes + 5000


@settings(max_examples=8)
@given(tables, tables, st.data(), st.booleans())
def test_altering_quota_records_equals_altering_the_table(
    values: dict[tuple[Entity, QuotaKey], float],
    others: dict[tuple[Entity, QuotaKey], float],
    data: st.DataObject,
    shadow: bool,
) -> None:
    changes = data.draw(
        st.fixed_dictionaries({quota: st.none() | rates_of(quota[1]) for quota in [*values, *others]})
    )
    table = QuotaTable(values, values)
    stored = StoredQuotas()
    for mode in (False, True):
        for record in alteration(QuotaTable(), values, shadow=mode):
            stored.apply(*record)
    assert stored.table() == table
    written = alteration(table, changes, shadow=shadow)
    assert len(written) == len({entity for entity, _key in changes})
    for record in written:
        stored.apply(*record)
    assert stored.table() == table.altered(changes, shadow=shadow)
