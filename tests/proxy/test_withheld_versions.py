"""A client uses a version that Weirs with other settings offer, and this one does not (`uplift = false`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.matrix import in_one_test
from tests.protocol.generate import sample
from tests.proxy.broker_versions import broker_of
from tests.proxy.playbook import Playbook
from tests.proxy.stage import Stage, until
from tests.proxy.uplifted import RAISED, told
from tests.proxy.wire import new_connection
from tests.wire.frames import body_of, request, response
from weir.protocol.api import ApiKey
from weir.protocol.codec import request_type, response_type
from weir.protocol.messages import (
    ApiVersionsRequest,
    FetchRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
)
from weir.protocol.values import Value, schema_of
from weir.protocol.versions import VersionRange
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.uplift.outdated_clients import CLIENTS_MAX, OutdatedClients
from weir.proxy.server.problems import Problems

OLD: Final = broker_of((0, 10, 2))
CODE: Final = 35
WHO: Final = "a client of unknown library (client-id 'app', 192.0.2.1)"


def connected(broker: Mapping[int, VersionRange] | None = OLD) -> Connection:
    """A connection of a Weir without uplift to a broker of these versions; None if they are unknown."""
    plans = Plans(Counters(), outdated=OutdatedClients())
    connection = new_connection(plans=plans if broker is None else plans.for_broker(broker))
    connection.client.peer = "192.0.2.1:5000"
    return connection


def because(api: str, version: int) -> dict[str, str]:
    why = "is not offered here: restart the client, so that it asks for the versions again"
    return {"error_message": f"{api} v{version} {why}"}


def codes(value: object) -> list[int]:
    """All error codes of a response."""
    if isinstance(value, list):
        return [code for each in value for code in codes(each)]
    if not isinstance(value, Value):
        return []
    fields = {name: getattr(value, name) for name in value.__struct_fields__}
    own = [code for name, code in fields.items() if name in ("error_code", "partition_error_code")]
    return own + [code for field in fields.values() for code in codes(field)]


@in_one_test
@pytest.mark.parametrize(("release", "key", "version"), RAISED)
def test_withheld_versions_are_answered_with_an_error_in_the_clients_version(
    release: tuple[int, ...], key: int, version: int
) -> None:
    connection = connected(broker_of(release))
    with Playbook(connection=connection) as play:
        play.client(request(sample(request_type(key), version), version))
        answer = body_of(bytes(play.wire.to_client), response_type(key), version)
        absent = [field.name for field in schema_of(type(answer)).layout(version).absent]
        assert set(codes(answer)) == {CODE} | {0 for name in absent if name == "error_code"}
        assert connection.counters.not_offered == {WHO: 1}
        play.wire.to_client.clear()


A, B = {"name": "a"}, {"name": "b"}
FAILED: Final = {"error_code": CODE}
NO_NODE: Final = FAILED | {"node_id": -1, "port": -1} | because("FindCoordinator", 1)
SHAPES: Final = [
    ((0, 10, 2), ApiKey.HEARTBEAT, 2, {"group_id": "g"}, FAILED),
    ((0, 10, 2), ApiKey.FIND_COORDINATOR, 1, {"key": "g"}, NO_NODE),
    (
        (0, 10, 2),
        ApiKey.DELETE_TOPICS,
        4,
        {"topic_names": ["a", "b"]},
        {"responses": [A | FAILED, B | FAILED]},
    ),
    (
        (0, 10, 2),
        ApiKey.CREATE_TOPICS,
        4,
        {"topics": [A]},
        {"topics": [A | FAILED | because("CreateTopics", 4)]},
    ),
    ((1, 1), ApiKey.METADATA, 6, {"topics": [A]}, {"topics": [A | FAILED]}),
    ((0, 10, 2), ApiKey.DESCRIBE_GROUPS, 2, {"groups": ["g"]}, {"groups": [{"group_id": "g"} | FAILED]}),
    (
        (1, 1),
        ApiKey.LIST_OFFSETS,
        3,
        {"topics": [A | {"partitions": [{"partition_index": 1}, {"partition_index": 2}]}]},
        {"topics": [A | {"partitions": [{"partition_index": number} | FAILED for number in (1, 2)]}]},
    ),
    (
        (1, 1),
        ApiKey.ADD_PARTITIONS_TO_TXN,
        1,
        {"v3_and_below_topics": [A | {"partitions": [3]}]},
        {
            "results_by_topic_v3_and_below": [
                A | {"results_by_partition": [{"partition_index": 3, "partition_error_code": CODE}]}
            ]
        },
    ),
    (
        (1, 1),
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        1,
        {
            "dirs": [
                {"path": "/x", "topics": [A | {"partitions": [7]}]},
                {"topics": [B | {"partitions": [8]}]},
            ]
        },
        {
            "results": [
                {"topic_name": name, "partitions": [{"partition_index": number} | FAILED]}
                for name, number in (("a", 7), ("b", 8))
            ]
        },
    ),
    ((1, 1), ApiKey.DESCRIBE_LOG_DIRS, 1, {"topics": None}, {"results": [FAILED]}),
    (
        (1, 1),
        ApiKey.DESCRIBE_CONFIGS,
        2,
        {"resources": [{"resource_type": 2, "resource_name": "a"}]},
        {"results": [{"resource_type": 2, "resource_name": "a"} | FAILED | because("DescribeConfigs", 2)]},
    ),
]


@pytest.mark.parametrize(("release", "key", "version", "asked", "answer"), SHAPES)
def test_the_error_stands_at_each_thing_that_was_asked_for(
    release: tuple[int, ...], key: int, version: int, asked: dict[str, Any], answer: dict[str, Any]
) -> None:
    with Playbook(connection=connected(broker_of(release))) as play:
        play.client(request(msgspec.convert(asked, request_type(key)), version))
        play.to_client(response(msgspec.convert(answer, response_type(key)), version))


def test_a_withheld_version_without_a_place_for_an_error_closes_the_connection() -> None:
    with Playbook(connection=connected()) as play:
        play.client(request(MetadataRequest(topics=None), 3))
        play.violation(CloseReason.REQUEST_VERSION_UNKNOWN, saying="Metadata v3")
        assert play.connection.counters.not_offered == {WHO: 1}


def test_versions_that_no_weir_offers_and_apiversions_go_to_the_broker() -> None:
    with Playbook(connection=connected()) as play:
        play.forwards(request(FetchRequest(), 11))
        play.forwards(request(MetadataRequest(topics=None), 7))
        play.forwards(request(ApiVersionsRequest(), 1))


def test_a_client_without_apiversions_is_answered_as_the_broker_requires() -> None:
    for broker, version in ((OLD, None), (broker_of((2, 8)), 2)):
        ping = request(HeartbeatRequest(), 2)
        with Playbook(connection=connected(None)) as play:
            play.client(ping)
            play.to_broker(request(ApiVersionsRequest(), 0))
            play.broker(told(broker))
            if version is None:
                play.to_client(response(HeartbeatResponse(error_code=CODE), 2))
            else:
                play.to_broker(ping)
                play.returns(response(HeartbeatResponse(), 2))


def test_clients_have_bounded_names_and_number() -> None:
    connection = connected()
    for number in range(CLIENTS_MAX + 2):
        connection.client.peer = f"192.0.2.{number}:5000"
        connection.client.software = "x" * 97
        client_id = b"\n" * 5000
        with Playbook(connection=connection) as play:
            play.client(request(HeartbeatRequest(), 2, client_id=client_id))
            play.to_client(response(HeartbeatResponse(error_code=CODE), 2))
    names = connection.counters.not_offered
    assert (len(names), names["others"]) == (CLIENTS_MAX + 1, 2)
    assert max(map(len, names)) < 400
    assert "\n" not in "".join(names)


def test_an_operator_is_told_which_client_to_restart(play: Callable[..., None]) -> None:
    async def script(stage: Stage) -> None:
        now_s = 0.0
        problems = Problems(stage.server, None, lambda: 0.0, lambda: now_s)
        stage.cluster.spoken[ApiKey.HEARTBEAT] = VersionRange(0, 1)
        client = await stage.connect(0)
        with capture_logs() as logs:
            assert await client.ask(request(HeartbeatRequest(), 2)) == response(
                HeartbeatResponse(error_code=CODE), 2
            )
        who = "a client of unknown library (client-id 'app', 127.0.0.1)"
        (line,) = [entry for entry in logs if entry["event"] == "version not offered"]
        assert (line["log_level"], line["who"], line["api"], line["version"]) == (
            "warning",
            who,
            "Heartbeat",
            2,
        )
        await until(lambda: bool(stage.server.counters.not_offered))

        def told() -> list[str]:
            found = {condition.key: condition.what for condition in problems.read()}
            return [what for key, what in found.items() if key == ("problem", "versions_not_offered")]

        (what,) = told()
        assert who in what
        now_s = 60.0
        assert told() == []

    play(script, uplift=False)
