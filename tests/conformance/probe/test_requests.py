"""Well-formed requests: they encode in every version, repeat for a seed, and do no harm."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from weir.conformance.probe.requests import HARMFUL, NO_ACKS, Names, request, shapes, well_formed
from weir.conformance.probe.requests.records import record_batch
from weir.conformance.verify.message_sets import MessageSetChecker
from weir.protocol import schema
from weir.protocol.api import ApiKey, versions
from weir.protocol.codec import codec, request_type
from weir.protocol.messages import (
    CreateTopicsRequest,
    ElectLeadersRequest,
    MetadataRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
)
from weir.protocol.schema import Layout
from weir.protocol.values import ZERO_UUID
from weir.protocol.versions import VersionRange

NAMES: Final = Names("weir-probe-00000000", topic_id=uuid.UUID(int=7), node_id=1)
OFFERED: Final[dict[int, VersionRange]] = {
    key: found for key in schema.api_keys() if (found := versions(key)) is not None
}
SENT: Final = [key for key in OFFERED if key not in HARMFUL]
PAGE: Final = Path(__file__).parents[3] / "docs" / "reference" / "probe.md"


@pytest.mark.parametrize("api_key", SENT, ids=lambda key: ApiKey(key).name.lower())
def test_requests_of_every_version_and_shape_decode_to_themselves(api_key: int) -> None:
    for version in OFFERED[api_key]:
        for shape in shapes(5):
            message = request(api_key, version, shape, NAMES, seed=3)
            found = codec(request_type(api_key), version)
            assert found.decode(found.encode(message)) == message, (version, shape)


def test_cases_repeat_for_a_seed_and_have_names_of_their_own() -> None:
    first, again, other = (list(well_formed(OFFERED, NAMES, seed)) for seed in (1, 1, 2))
    assert first == again != other
    assert len({case.name for case in first}) == len(first)
    assert {case.api_key for case in first} == set(SENT)


def test_a_case_is_the_same_if_the_target_offers_nothing_else() -> None:
    whole = {case.name: case for case in well_formed(OFFERED, NAMES, 5)}
    alone = list(well_formed({ApiKey.FETCH: OFFERED[ApiKey.FETCH]}, NAMES, 5))
    assert alone == [whole[case.name] for case in alone]


@pytest.mark.parametrize("api_key", SENT, ids=lambda key: ApiKey(key).name.lower())
def test_maximal_requests_have_every_array_and_tagged_field_of_their_version(api_key: int) -> None:
    empty = {
        path
        for version in OFFERED[api_key]
        for path, value in values(
            request(api_key, version, "maximal", NAMES), codec(request_type(api_key), version).layout
        )
        if value == []
    }
    assert empty <= {"assignments"}


def test_requests_name_only_topics_groups_and_transactions_of_the_run() -> None:
    own = ("topicName", "groupId", "transactionalId")
    for api_key in SENT:
        for version in OFFERED[api_key]:
            for shape in shapes(5):
                message = request(api_key, version, shape, NAMES, seed=1)
                layout = codec(request_type(api_key), version).layout
                for found in named(message, layout, own):
                    assert found in (None, "__cluster_metadata") or found.startswith(NAMES.prefix), api_key


def test_changes_are_only_validated_if_the_version_can_validate() -> None:
    for api_key in SENT:
        for version in OFFERED[api_key]:
            for shape in shapes(5):
                message = request(api_key, version, shape, NAMES, seed=2)
                assert getattr(message, "validate_only", True) or not has(api_key, version, "validate_only")


def test_requests_that_cannot_validate_change_nothing() -> None:
    for shape in shapes(20):
        create = request(ApiKey.CREATE_TOPICS, 0, shape, NAMES)
        assert isinstance(create, CreateTopicsRequest)
        assert {topic.name for topic in create.topics} == {NAMES.topic}
        for version in range(10):
            metadata = request(ApiKey.METADATA, version, shape, NAMES)
            assert isinstance(metadata, MetadataRequest)
            if version < 4:
                assert {topic.name for topic in metadata.topics or []} <= {NAMES.topic}
            else:
                assert not metadata.allow_auto_topic_creation


def test_elections_name_the_partitions_of_the_run() -> None:
    for version in OFFERED[ApiKey.ELECT_LEADERS]:
        for shape in shapes(20):
            message = request(ApiKey.ELECT_LEADERS, version, shape, NAMES)
            assert isinstance(message, ElectLeadersRequest)
            assert message.topic_partitions


def test_offsets_in_transactions_that_nobody_ends_are_of_absent_topics() -> None:
    for version in OFFERED[ApiKey.TXN_OFFSET_COMMIT]:
        for shape in shapes(20):
            message = request(ApiKey.TXN_OFFSET_COMMIT, version, shape, NAMES)
            assert isinstance(message, TxnOffsetCommitRequest)
            topics = {(topic.name, topic.topic_id) for topic in message.topics}
            assert topics <= {(NAMES.absent_topic, ZERO_UUID), ("", NAMES.absent_id)}


def test_produce_without_acks_expects_silence() -> None:
    message = request(ApiKey.PRODUCE, 9, NO_ACKS, NAMES)
    assert isinstance(message, ProduceRequest)
    assert message.acks == 0
    (case,) = (
        case
        for case in well_formed({ApiKey.PRODUCE: OFFERED[ApiKey.PRODUCE]}, NAMES, 0)
        if case.name == f"Produce/v9/{NO_ACKS}"
    )
    assert [outcome.value for outcome in case.permitted] == ["silence"]


@pytest.mark.parametrize("version", [0, 2])
def test_old_record_batches_keep_the_rules_of_verify(version: int) -> None:
    data = record_batch(version)
    checker = MessageSetChecker(data, 0, len(data), "records")
    checker.check()
    assert checker.defects == []


def test_the_page_lists_the_apis_without_well_formed_requests() -> None:
    rows = re.findall(r"^\| (.+) \| (`.+`) \|$", PAGE.read_text().split("<!-- harmful -->")[1], re.MULTILINE)
    names = {key: found.name for key in HARMFUL if (found := schema.api(key)) is not None}
    listed = {name: reason for reason, apis in rows for name in re.findall(r"\w+", apis)}
    assert listed == {names[key]: reason for key, reason in HARMFUL.items()}


def values(message: object, layout: Layout) -> Iterator[tuple[str, object]]:
    """The name and value of each array in a message, and in its structs."""
    for slot in (*layout.fields, *layout.tagged):
        value = getattr(message, slot.name)
        if slot.is_array:
            yield slot.name, value
        if slot.struct is not None:
            for each in value if isinstance(value, list) else [value]:
                if each is not None:
                    yield from values(each, slot.struct)


def named(message: object, layout: Layout, entities: tuple[str, ...]) -> Iterator[str | None]:
    for slot in (*layout.fields, *layout.tagged):
        value = getattr(message, slot.name)
        for each in value if isinstance(value, list) else [value]:
            if slot.struct is not None and each is not None:
                yield from named(each, slot.struct, entities)
            elif slot.field.entity_type in entities:
                yield each


def has(api_key: int, version: int, field: str) -> bool:
    return any(slot.name == field for slot in codec(request_type(api_key), version).layout.fields)
