"""Quotas that others have written: records of the quota topic, and answers of brokers.

Documented errors: RecordError for records, ProtocolError for answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.fuzz.growth import fillers, wide
from tests.fuzz.target import Grow, Target
from tests.protocol.generate import sample
from weir.protocol.codec import codec
from weir.protocol.errors import ProtocolError
from weir.protocol.messages import DescribeClientQuotasResponse
from weir.proxy.control.stores import replication_records
from weir.proxy.control.stores.record import RecordError
from weir.proxy.control.stores.records import EntityMode, StoredQuotas, read_key, write
from weir.proxy.control.stores.wire_quotas import imported
from weir.quotas import Entity, QuotaKey
from weir.quotas.replication.throttles import ResourceType, Role
from weir.quotas.table.entities import DEFAULT, Prefix
from weir.quotas.table.replication_entry import Resource

BETWEEN: Final = b"\xff"
"""Separates key and value; JSON in UTF-8 lacks it."""


def run(data: bytes) -> None:
    """Apply records: key, value, key, … A key that is read is written back as the same bytes."""
    stored, parts = StoredQuotas(), data.split(BETWEEN, 16)
    for key, value in zip(parts[::2], parts[1::2], strict=False):
        before = stored.table()
        try:
            stored.apply(key, value or None)
        except RecordError:
            assert stored.table() == before
        else:
            assert _written_again(key) == key
    stored.table()


def _written_again(key: bytes) -> bytes:
    if key.startswith(replication_records.PREFIX):
        return replication_records.write(replication_records.read_key(key), {}).key
    return write(read_key(key), {}).key


def run_answers(data: bytes) -> None:
    """Import the quotas of a broker: every value is taken or skipped."""
    try:
        answer = codec(DescribeClientQuotasResponse, 1).decode(data)
    except ProtocolError:
        return
    imported(answer)


def seeds() -> Sequence[bytes]:
    """Return a record of each kind of entity, and of throttles of a broker and a topic."""
    quotas = {QuotaKey.PRODUCER_BYTE_RATE: 1e6}
    slots = [
        EntityMode(Entity("alice"), False),
        EntityMode(Entity(DEFAULT, "app"), True),
        EntityMode(Entity(None, Prefix("etl-")), False),
        EntityMode(Entity(topic="t"), False),
    ]
    made = [write(slot, quotas) for slot in slots]
    for kind, name, config, value in (
        (ResourceType.BROKER, "1", Role.LEADER.rate_key, "1000"),
        (ResourceType.BROKER, "", Role.FOLLOWER.rate_key, "0"),
        (ResourceType.TOPIC, "t", Role.LEADER.replicas_key, "0:1,1:2"),
    ):
        made.append(replication_records.write(Resource(kind, name), {config: value}))
    return [BETWEEN.join((record.key, record.value or b"", record.key, b"")) for record in made]


def answer_seeds() -> Sequence[bytes]:
    """Return answers with a user's quota and with an address's."""
    part, value = DescribeClientQuotasResponse.EntityData, DescribeClientQuotasResponse.ValueData
    entries = [
        DescribeClientQuotasResponse.EntryData(
            entity=[part(entity_type=kind, entity_name=name)], values=[value(key=key, value=5.0)]
        )
        for kind, name, key in (
            ("user", "alice", "producer_byte_rate"),
            ("user", None, "request_percentage"),
            ("ip", "10.0.0.1", "connection_creation_rate"),
        )
    ]
    answer = DescribeClientQuotasResponse(entries=entries)
    return [codec(DescribeClientQuotasResponse, 1).encode(answer)]


def growing() -> dict[str, Grow]:
    key = b'{"entity":{"user":"'
    return dict(fillers()) | {
        "long names": lambda count: key + b"a" * count + b'"},"mode":"enforce"}\xff{}',
        "nested": lambda count: b"[" * count + BETWEEN + b"{" * count,
        "parts": lambda count: b'{"entity":{' + b'"user":"a",' * count + BETWEEN,
    }


def growing_answers() -> dict[str, Grow]:
    assert sample(DescribeClientQuotasResponse, 1).entries
    return dict(wide(DescribeClientQuotasResponse, 1)) | dict(fillers())


RECORDS: Final = Target("quota-records", run, seeds, growing)
ANSWERS: Final = Target("quota-answers", run_answers, answer_seeds, growing_answers)
