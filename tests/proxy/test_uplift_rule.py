"""Which versions uplift offers: every step decided, none that changes the meaning of anything."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings

import tests.protocol
from tests.matrix import in_one_test
from tests.protocol.generate import messages
from tests.proxy.broker_versions import BROKER_API_VERSIONS, BROKER_DATA, broker_of
from tests.wire.frames import request as request_frame
from weir.protocol import schema
from weir.protocol.api import ApiKey, request_header_version, response_header_version, versions
from weir.protocol.backing_off import BACKS_OFF_FROM
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.errors import EncodeError
from weir.protocol.messages import CreateTopicsRequest
from weir.protocol.values import Message
from weir.protocol.version_differences import DifferenceKind, VersionDifference, version_differences
from weir.protocol.versions import VersionRange
from weir.proxy.handlers.uplift.uplift_rule import (
    BY_HAND,
    EXCEPTIONS,
    NEVER,
    Route,
    UpliftKind,
    beyond,
    offered,
    route,
    taken,
)

THROTTLE_TABLE: Final[list[dict[str, Any]]] = json.loads(
    (Path(tests.protocol.__file__).parent / "data" / "throttle_fields.json").read_bytes()
)["responses"]


KEYS: Final = schema.api_keys()
EVERY: Final = [found for key in KEYS for found in version_differences(key)]
TAKEN: Final = [found for found in EVERY if taken(found.api_key, found.version) is not None]


def name(found: VersionDifference) -> str:
    return f"{ApiKey(found.api_key).name}-v{found.version}"


# Decisions


def test_every_small_version_step_is_uplifted_or_a_named_exception() -> None:
    """A new release of Kafka's schemas fails here until someone has decided."""
    little = {(found.api_key, found.version) for found in EVERY if found.change is not DifferenceKind.OTHER}
    decided = {(found.api_key, found.version) for found in TAKEN} | EXCEPTIONS.keys()
    undecided = {each for each in little - decided if each[0] not in NEVER}
    assert undecided == set(), "take them in proxy/handlers/uplift/uplift_rule.py, or say there why not"


def test_throttle_versions_are_those_of_kafkas_classes() -> None:
    theirs = {
        row["api_key"]: row["client_backs_off_from"] for row in THROTTLE_TABLE if row["client_backs_off_from"]
    }
    assert theirs == BACKS_OFF_FROM


@in_one_test
@pytest.mark.parametrize("found", TAKEN, ids=name)
def test_the_uplift_kind_covers_what_its_version_step_changes(found: VersionDifference) -> None:
    decision = taken(found.api_key, found.version)
    assert decision is not None
    least = {
        DifferenceKind.SAME: UpliftKind.PATCH,
        DifferenceKind.THROTTLE: UpliftKind.THROTTLE,
        DifferenceKind.OTHER: UpliftKind.TRANSLATE,
    }
    assert decision.kind >= least[found.change]
    assert decision.reason


# What is offered


@in_one_test
@pytest.mark.parametrize("release", BROKER_API_VERSIONS, ids=str)
def test_uplift_does_not_change_the_release_that_kafka_python_infers(release: tuple[int, ...]) -> None:
    """kafka-python chooses what it sends by the release that it infers."""
    seen = {key: (found.min, found.max) for key, found in offered(broker_of(release)).items()}
    plain = {key: (found.min, found.max) for key, found in offered(broker_of(release), uplift=False).items()}
    infer = BROKER_DATA.infer_broker_version_from_api_versions
    assert infer(seen) == infer(plain)


def test_only_versions_known_to_weir_and_the_broker_are_offered() -> None:
    broker = {
        ApiKey.METADATA: VersionRange(5, 900),
        ApiKey.HEARTBEAT: VersionRange(0, 1),
        ApiKey.JOIN_GROUP: VersionRange(99, 100),
        ApiKey.SYNC_GROUP: VersionRange(1, 0),
        4242: VersionRange(0, 3),
    }
    assert offered(broker) == {ApiKey.METADATA: VersionRange(5, 13), ApiKey.HEARTBEAT: VersionRange(0, 2)}
    assert offered(broker, uplift=False)[ApiKey.HEARTBEAT] == VersionRange(0, 1)
    assert offered({}) == {}


# Routes


@pytest.mark.parametrize(
    ("api_key", "version", "broker_max", "kind", "position", "broker_waits"),
    [
        (ApiKey.METADATA, 3, 2, UpliftKind.THROTTLE, "first", False),
        (ApiKey.METADATA, 6, 5, UpliftKind.PATCH, None, True),
        (ApiKey.JOIN_GROUP, 2, 1, UpliftKind.THROTTLE, "first", False),
        (ApiKey.JOIN_GROUP, 3, 1, UpliftKind.THROTTLE, "first", False),
        (ApiKey.JOIN_GROUP, 3, 2, UpliftKind.PATCH, None, True),
        (ApiKey.API_VERSIONS, 2, 0, UpliftKind.THROTTLE, "last", False),
        (ApiKey.FIND_COORDINATOR, 2, 0, UpliftKind.TRANSLATE, None, False),
        (ApiKey.FIND_COORDINATOR, 2, 1, UpliftKind.PATCH, None, True),
        (ApiKey.CREATE_TOPICS, 2, 1, UpliftKind.THROTTLE, "first", False),
        (ApiKey.CREATE_TOPICS, 6, 1, UpliftKind.TRANSLATE, None, False),
        (ApiKey.CREATE_TOPICS, 6, 2, UpliftKind.TRANSLATE, None, True),
        (ApiKey.CREATE_TOPICS, 6, 3, UpliftKind.TRANSLATE, None, False),
        (ApiKey.CREATE_TOPICS, 6, 5, UpliftKind.PATCH, None, False),
        (ApiKey.DELETE_TOPICS, 3, 1, UpliftKind.PATCH, None, True),
        (ApiKey.DELETE_TOPICS, 5, 4, UpliftKind.TRANSLATE, None, False),
        (ApiKey.CREATE_PARTITIONS, 3, 0, UpliftKind.TRANSLATE, None, True),
        (ApiKey.CREATE_PARTITIONS, 3, 2, UpliftKind.PATCH, None, False),
    ],
)
def test_uplift_routes_have_the_broker_version_and_kind(
    api_key: ApiKey, version: int, broker_max: int, kind: UpliftKind, position: str | None, broker_waits: bool
) -> None:
    found = route(api_key, version, VersionRange(0, broker_max))
    assert found is not None
    assert found[:2] == (broker_max, kind)
    assert (found.throttle and found.throttle.value, found.broker_waits) == (position, broker_waits)


def every_route() -> dict[tuple[int, int], list[Route]]:
    """By (API, version): every way there, one for each broker that lacks it."""
    return {
        (key, version): [
            found
            for newest in range(known.min, version)
            if (found := route(key, version, VersionRange(known.min, newest))) is not None
        ]
        for key in KEYS
        if (known := versions(key)) is not None
        for version in known
    }


EVERY_ROUTE: Final = every_route()


WAYS: Final = [(key, version, found) for (key, version), ways in EVERY_ROUTE.items() for found in ways]
CHEAP_WAYS: Final = [each for each in WAYS if each[2].kind is not UpliftKind.TRANSLATE]
TRANSLATIONS: Final = [each for each in WAYS if each[2].kind is UpliftKind.TRANSLATE]


def way_id(value: object) -> str | None:
    return f"from-v{value.broker_version}" if isinstance(value, Route) else None


@in_one_test
@pytest.mark.parametrize(("key", "version", "way"), CHEAP_WAYS, ids=way_id)
def test_patched_requests_differ_only_in_their_version_number(key: int, version: int, way: Route) -> None:
    assert request_header_version(key, version) == request_header_version(key, way.broker_version)
    assert response_header_version(key, version) == response_header_version(key, way.broker_version)
    kind = request_type(key)

    @settings(max_examples=2)
    @given(value=messages(kind, version))
    def check(value: Message) -> None:
        theirs = bytearray(request_frame(value, version))
        theirs[6:8] = way.broker_version.to_bytes(2, "big")
        assert theirs == request_frame(value, way.broker_version)

    check()


@pytest.mark.parametrize(("key", "version", "way"), TRANSLATIONS, ids=way_id)
def test_a_translated_request_keeps_its_meaning_or_is_refused(key: int, version: int, way: Route) -> None:
    kind, delivered = request_type(key), 0

    @settings(max_examples=25)
    @given(value=messages(kind, version, tame=True))
    def check(value: Message) -> None:
        nonlocal delivered
        if beyond(value, version, way.broker_version) is not None:
            return
        try:
            encoded = codec(kind, way.broker_version).encode(value)
        except EncodeError:
            return
        delivered += 1
        assert codec(kind, way.broker_version).decode(encoded) == value

    check()
    assert delivered, "nothing can be asked"


@pytest.mark.parametrize(("key", "version", "way"), TRANSLATIONS, ids=way_id)
def test_a_translated_response_has_every_field(key: int, version: int, way: Route) -> None:
    kind = response_type(key)

    @settings(max_examples=13)
    @given(value=messages(kind, way.broker_version, tame=True))
    def check(value: Message) -> None:
        encoded = codec(kind, version).encode(value)
        assert codec(kind, version).decode(encoded) == value

    check()


# What an older broker cannot be asked


@pytest.mark.parametrize("field", ["num_partitions", "replication_factor"])
@pytest.mark.parametrize(("broker_version", "refused"), [(0, True), (3, True), (4, False), (5, False)])
def test_default_partition_counts_need_createtopics_v4(
    field: str, broker_version: int, refused: bool
) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="a", num_partitions=1, replication_factor=1)
    asked = CreateTopicsRequest(topics=[topic, msgspec.structs.replace(topic, name="b", **{field: -1})])
    assert (beyond(asked, 7, broker_version) is not None) == refused
    assert beyond(asked, 3, broker_version) is None
    assert beyond(CreateTopicsRequest(topics=[topic]), 7, broker_version) is None


# The page

PAGE: Final = (Path(__file__).parents[2] / "docs" / "reference" / "uplift.md").read_text("utf-8")
IN_WORDS: Final = {
    UpliftKind.PATCH: "renumbered",
    UpliftKind.THROTTLE: "inserted",
    UpliftKind.TRANSLATE: "translated",
}


def api_name(api_key: int) -> str:
    found = schema.api(api_key)
    assert found is not None
    return found.name


def by_rule() -> list[str]:
    apis = dict[tuple[str, ...], list[str]]()
    for key in KEYS:
        ours = [found for found in TAKEN if found.api_key == key and (key, found.version) not in BY_HAND]
        kinds = (DifferenceKind.THROTTLE, DifferenceKind.SAME)
        steps = tuple(", ".join(str(each.version) for each in ours if each.change is kind) for kind in kinds)
        if ours:
            apis.setdefault(steps, []).append(api_name(key))
    lines = [f"| {', '.join(names)} | {' | '.join(steps)} |" for steps, names in apis.items()]
    head = "| APIs | version with throttle_time_ms | version in which clients wait |"
    return [head, "| --- | --- | --- |", *lines]


def hand_picked() -> list[str]:
    lines = [
        f"| {api_name(key)} {version} | {IN_WORDS[found.kind]} | {found.reason} |"
        for (key, version), found in BY_HAND.items()
    ]
    return ["| step to | kind | effect |", "| --- | --- | --- |", *lines]


@pytest.mark.parametrize("table", [by_rule, hand_picked], ids=lambda table: str(table.__name__))
def test_the_uplift_page_has_the_current_tables(table: Callable[[], list[str]]) -> None:
    rows = "\n".join(table())
    assert f"\n\n{rows}\n\n" in PAGE, f"docs/reference/uplift.md must have this table:\n{rows}"
