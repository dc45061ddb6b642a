"""Records of replication throttles in the quota topic: what they look like, and that none can do harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.proxy.throttles import BROKER_1, ORDERS
from tests.quotas.throttle_strategies import changes_of, throttles
from weir.proxy.control.stores import replication_records
from weir.proxy.control.stores.record import ProducerRecord, RecordError
from weir.proxy.control.stores.records import StoredQuotas
from weir.proxy.control.stores.replication_records import alteration, read_key, write
from weir.quotas import QuotaTable
from weir.quotas.replication.throttles import NO_THROTTLES, ConfigKey, ReplicationThrottles, ResourceType
from weir.quotas.table.replication_entry import Resource

BROKER = Resource(ResourceType.BROKER, "1")
TOPIC = Resource(ResourceType.TOPIC, "orders")


def applied(records: list[ProducerRecord], stored: StoredQuotas | None = None) -> QuotaTable:
    stored = stored or StoredQuotas()
    for record in records:
        stored.apply(*record)
    return stored.table()


def test_a_throttle_record_is_canonical_json() -> None:
    assert write(BROKER, {BROKER_1.name: "10"}) == ProducerRecord(
        b'{"replication":{"broker":"1"}}',
        b'{"replication":{"leader.replication.throttled.rate":"10"},"version":1}',
    )
    assert write(Resource(ResourceType.BROKER, ""), {}) == ProducerRecord(
        b'{"replication":{"broker":null}}', None
    )
    assert write(TOPIC, {}).key == b'{"replication":{"topic":"orders"}}'


@given(throttles, st.data())
def test_altering_throttle_records_equals_altering_the_throttles(
    before: ReplicationThrottles, data: st.DataObject
) -> None:
    changes = data.draw(changes_of(before))
    stored = StoredQuotas()
    first = applied(alteration(NO_THROTTLES, dict(before.values)), stored)
    assert first == QuotaTable(replication=before)
    written = alteration(before, changes)
    assert len(written) == len({Resource.of(key) for key in changes})
    assert applied(written, stored).replication == before.altered(changes)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (b'{"replication":{}}', "throttles of"),
        (b'{"replication":{"user":"a"}}', "throttles of 'user'"),
        (b'{"replication":{"broker":"1","topic":"t"}}', "throttles of 'broker, topic'"),
        (b'{"replication":{"topic":null}}', "no name of a topic"),
        (b'{"replication":{"topic":""}}', "no name of a topic"),
        (b'{"replication":{"broker":""}}', "no name of a broker"),
        (b'{"replication":{"broker":1}}', "none of Weir's"),
        (b'{"replication":{"broker":"1"},"mode":"enforce"}', "none of Weir's"),
        (b'{"replication":{"broker": "1"}}', "spelled"),
        (b'{"replication":{"broker":"2","broker":"1"}}', "spelled"),
        (b'{"replication":{"topic":"\\u0061"}}', "spelled"),
        (b'{"replication":{"topic":"' + 32768 * b"a" + b'"}}', "more than 32767 bytes"),
        (b'{"replication":' + b'{"a":' * 100_000, "none of Weir's"),
        (b'{"replication":{"topic":"\xff"}}', "none of Weir's"),
    ],
)
def test_a_malformed_key_of_a_throttle_record_is_refused(key: bytes, words: str) -> None:
    with pytest.raises(RecordError, match=words):
        read_key(key)
    with pytest.raises(RecordError, match=words):
        StoredQuotas().apply(key, None)


RATE = b'"leader.replication.throttled.rate"'


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "none of Weir's"),
        (b"[1]", "none of Weir's"),
        (b'{"replication":{' + RATE + b':5},"version":1}', "none of Weir's"),
        (b'{"replication":{' + RATE + b':"5"},"version":1,"more":1}', "none of Weir's"),
        (b'{"replication":' + b'{"a":' * 100_000, "none of Weir's"),
        (b'{"replication":{' + RATE + b':"5"},"version":2}', "version 2, this Weir knows 1"),
        (b'{"replication":{},"version":1}', "no throttles"),
        (b'{"replication":{' + RATE + b':"fast"},"version":1}', "must be a whole number"),
        (b'{"replication":{' + RATE + b':"-1"},"version":1}', "must be a whole number"),
        (b'{"replication":{"leader.replication.throttled.replicas":"*"},"version":1}', "no replication"),
        (b'{"replication":{"log.dirs":"/tmp"},"version":1}', "no replication throttle of a broker"),
    ],
)
def test_a_malformed_throttle_record_keeps_the_earlier_throttles(value: bytes, words: str) -> None:
    stored = StoredQuotas()
    before = applied([write(BROKER, {BROKER_1.name: "10"})], stored)
    with pytest.raises(RecordError, match=words) as refused:
        stored.apply(b'{"replication":{"broker":"1"}}', value)
    assert "\n" not in str(refused.value)
    assert stored.table() == before


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (BROKER_1._replace(resource_name="x"), "5"),
        (BROKER_1, "fast"),
        (ORDERS, "0-1"),
        (ORDERS._replace(name=BROKER_1.name), "5"),
        (ORDERS._replace(resource_name="\ud800"), "*"),
    ],
)
def test_an_impossible_throttle_is_not_written_to_the_quota_topic(key: ConfigKey, value: str) -> None:
    with pytest.raises(RecordError):
        alteration(NO_THROTTLES, {key: value})


def test_the_number_of_throttled_resources_in_the_quota_topic_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replication_records, "RESOURCES_MAX", 1)
    stored = StoredQuotas()
    applied([write(BROKER, {BROKER_1.name: "1"})], stored)
    with pytest.raises(RecordError, match="already"):
        stored.apply(*write(TOPIC, {ORDERS.name: "*"}))
    assert applied([write(BROKER, {BROKER_1.name: "2"})], stored).replication == ReplicationThrottles(
        {BROKER_1: "2"}
    )
