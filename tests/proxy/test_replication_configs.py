"""AlterConfigs, IncrementalAlterConfigs and DescribeConfigs with replication throttles, which Weir keeps.

Error codes and semantics are those of KRaft controllers (ConfigurationControlManager, ConfigAdminManager) and
of the validator of the lists (ThrottledReplicaListValidator). The broker's responses are encoded by kio.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kfake.cluster import everything
from tests.kfake.configs import (
    APPEND,
    BROKER,
    DELETE,
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    LISTS,
    RATES,
    SET,
    TOPIC,
    Ops,
    Resource,
    Values,
)
from tests.matrix import check_each
from tests.proxy.playbook import Playbook
from tests.proxy.throttle_configs import (
    RETENTION,
    Front,
    config_cluster,
    describing,
    encoded,
    incremental,
    replacing,
    throttles,
)
from tests.wire.frames import body_of, framed, header, request, response, unknown_request
from weir.protocol import messages as m
from weir.protocol.api import ApiKey, request_header_version, versions
from weir.protocol.messages import Message
from weir.protocol.values import schema_of
from weir.protocol.versions import VersionRange
from weir.proxy.close_reasons import CloseReason

ORDERS: Final = (TOPIC, "orders")
BILLS: Final = (TOPIC, "bills")
ONE: Final = (BROKER, "1")
ALL: Final = (BROKER, "")
INVALID_CONFIG, INVALID_REQUEST = 40, 42


def kio_request(message: Message, version: int, correlation_id: int = 1) -> bytes:
    api_key = schema_of(type(message)).api_key
    tags = b"\x00" if request_header_version(api_key, version) == 2 else None
    return framed(header(api_key, version, correlation_id, b"app", tags=tags) + encoded(message, version))


def each_version(*keys: ApiKey) -> list[tuple[ApiKey, int]]:
    return [(api_key, version) for api_key in keys for version in versions(api_key) or ()]


# Altering


def test_throttles_are_kept_in_weir_and_the_broker_gets_none_in_every_version() -> None:
    def check(case: tuple[ApiKey, int]) -> None:
        api_key, version = case
        front = Front()
        if api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS:
            asked = incremental(
                {ORDERS: [(LEADER_REPLICAS, SET, "0:1,1:2")], ONE: [(LEADER_RATE, SET, "1000000")]}
            )
        else:
            asked = replacing({ORDERS: {LEADER_REPLICAS: "0:1,1:2"}, ONE: {LEADER_RATE: "1000000"}})
        told = front.send(kio_request(asked, version))
        found = front.alter(asked, version)
        assert found == {ORDERS: 0, ONE: 0}
        assert told == response(_all_good(api_key, ORDERS, ONE), version)
        assert front.stored == {(ORDERS, LEADER_REPLICAS): "0:1,1:2", (ONE, LEADER_RATE): "1000000"}
        assert all(not values for values in front.broker.configs.values())

    check_each(each_version(ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS), check)


def _all_good(api_key: ApiKey, *resources: Resource) -> Message:
    incremental_ = api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS
    kind: Any = m.IncrementalAlterConfigsResponse if incremental_ else m.AlterConfigsResponse
    entry = kind.AlterConfigsResourceResponse
    results = [
        entry(error_message=None, resource_type=type_, resource_name=name) for type_, name in resources
    ]
    return kind(responses=results)  # type: ignore[no-any-return]


def test_the_response_waits_until_the_store_has_the_throttles_and_later_requests_wait_too() -> None:
    front = Front(answers=False)
    with Playbook(connection=front.connection) as play:
        play.client(request(incremental({ONE: [(LEADER_RATE, SET, "5")]}), 1, 1))
        play.to_broker(request(m.MetadataRequest(topics=[]), 1, 1))
        play.broker(response(m.MetadataResponse(), 1, 1))
        play.at(1000)
        play.client(request(describing(BILLS), 1, 2))
        play.silent()
        assert not front.connection.waits_for_turn
        play.wake(lambda: front.admin.waiting.pop()(None))
        play.to_client(response(_all_good(ApiKey.INCREMENTAL_ALTER_CONFIGS, ONE), 1, 1))
        play.to_broker(request(describing(BILLS), 1, 2))


def test_a_failed_store_fails_the_resources_with_throttles_only() -> None:
    front = Front(answers=False)
    asked = incremental(
        {
            ONE: [(LEADER_RATE, SET, "5")],
            ORDERS: [(LEADER_REPLICAS, SET, "*"), (RETENTION, SET, "1")],
            BILLS: [(RETENTION, SET, "2")],
        }
    )
    assert front.send(request(asked, 1)) == b""
    front.wire.wake(0, lambda: front.admin.waiting.pop()("the disk is full"))
    frame = bytes(front.wire.to_client)
    found = {
        entry.resource_name: (entry.error_code, entry.error_message)
        for entry in body_of(frame, m.IncrementalAlterConfigsResponse, 1).responses
    }
    assert found == {"1": (-1, "the disk is full"), "orders": (-1, "the disk is full"), "bills": (0, None)}


def test_a_client_that_leaves_while_the_store_writes_gets_nothing() -> None:
    front = Front(answers=False)
    front.send(request(incremental({ONE: [(LEADER_RATE, SET, "5")]}), 1))
    front.connection.end(0)
    front.admin.waiting.pop()(None)
    assert not front.connection.waits_for_turn
    assert front.stored == {(ONE, LEADER_RATE): "5"}


def test_a_mixed_request_alters_weirs_part_only_if_the_broker_accepts_the_rest() -> None:
    front = Front()
    asked = {
        ORDERS: [(LEADER_REPLICAS, SET, "0:1"), (RETENTION, SET, "7")],
        BILLS: [(LEADER_REPLICAS, SET, "0:1"), (RETENTION, SET, "much")],
        ONE: [(FOLLOWER_RATE, SET, "9")],
        (8, "1"): [(LEADER_RATE, SET, "1")],
    }
    assert front.alter(incremental(asked)) == {ORDERS: 0, BILLS: INVALID_CONFIG, ONE: 0, (8, "1"): 0}
    assert front.stored == {(ORDERS, LEADER_REPLICAS): "0:1", (ONE, FOLLOWER_RATE): "9"}
    assert front.broker.configs == {ORDERS: {RETENTION: "7"}, (8, "1"): {LEADER_RATE: "1"}}


def test_a_resource_with_a_refused_throttle_does_not_reach_the_broker() -> None:
    front = Front()
    asked = {ORDERS: [(LEADER_REPLICAS, SET, "0-1"), (RETENTION, SET, "7")], BILLS: [(RETENTION, SET, "8")]}
    assert front.alter(incremental(asked)) == {ORDERS: INVALID_CONFIG, BILLS: 0}
    assert front.stored == {}
    assert front.broker.configs == {BILLS: {RETENTION: "8"}}


BAD: Final[list[tuple[Resource, str, int, str | None, int]]] = [
    (ONE, LEADER_RATE, SET, "fast", INVALID_REQUEST),
    (ONE, LEADER_RATE, SET, "-1", INVALID_REQUEST),
    (ONE, LEADER_RATE, SET, "9223372036854775808", INVALID_REQUEST),
    (ONE, LEADER_RATE, SET, None, INVALID_REQUEST),
    (ONE, LEADER_RATE, APPEND, "1", INVALID_CONFIG),
    (ONE, LEADER_RATE, 9, "1", INVALID_REQUEST),
    (ONE, LEADER_REPLICAS, SET, "0:1", INVALID_CONFIG),
    (ORDERS, LEADER_RATE, SET, "1", INVALID_CONFIG),
    (ORDERS, LEADER_REPLICAS, SET, "0", INVALID_CONFIG),
    (ORDERS, LEADER_REPLICAS, SET, "*,0:1", INVALID_CONFIG),
    (ORDERS, FOLLOWER_REPLICAS, APPEND, "x", INVALID_CONFIG),
    ((BROKER, "first"), LEADER_RATE, SET, "1", INVALID_REQUEST),
    ((TOPIC, "missing"), LEADER_REPLICAS, SET, "*", 3),
]


@pytest.mark.parametrize(("resource", "name", "op", "value", "code"), BAD)
def test_a_throttle_that_brokers_refuse_is_refused(
    resource: Resource, name: str, op: int, value: str | None, code: int
) -> None:
    front = Front()
    assert front.alter(incremental({resource: [(name, op, value)]})) == {resource: code}
    assert front.stored == {}


def test_validate_only_changes_neither_weir_nor_the_broker() -> None:
    for asked in (
        incremental({ORDERS: [(LEADER_REPLICAS, SET, "*"), (RETENTION, SET, "7")]}, validate_only=True),
        replacing({ORDERS: {LEADER_REPLICAS: "*", RETENTION: "7"}}, validate_only=True),
    ):
        front = Front()
        assert front.alter(asked) == {ORDERS: 0}
        assert (front.stored, front.broker.configs) == ({}, {})
        sent: Any = front.broker.messages_of(type(asked))
        assert [message.validate_only for message in sent] == [True]


def test_a_resource_that_is_named_twice_is_refused() -> None:
    front = Front()
    asked: Any = incremental({ORDERS: [(LEADER_REPLICAS, SET, "*")], BILLS: [(RETENTION, SET, "1")]})
    asked.resources += incremental({ORDERS: [(RETENTION, SET, "1")]}).resources  # type: ignore[attr-defined]
    assert front.alter(asked) == {ORDERS: INVALID_REQUEST, BILLS: 0}
    assert front.stored == {}
    assert front.broker.configs == {BILLS: {RETENTION: "1"}}


def test_alterconfigs_removes_the_throttles_that_it_does_not_name() -> None:
    table = throttles(
        {
            (ORDERS, LEADER_REPLICAS): "0:1",
            (ORDERS, FOLLOWER_REPLICAS): "0:2",
            (BILLS, LEADER_REPLICAS): "*",
            (ONE, LEADER_RATE): "5",
        }
    )
    front = Front(table, broker=config_cluster(configs={ORDERS: {RETENTION: "1"}, ONE: {"a": "1"}}))
    assert front.alter(replacing({ORDERS: {FOLLOWER_REPLICAS: "0:3"}, ONE: {"a": "2"}})) == {
        ORDERS: 0,
        ONE: 0,
    }
    assert front.stored == {(ORDERS, FOLLOWER_REPLICAS): "0:3", (BILLS, LEADER_REPLICAS): "*"}
    assert front.broker.configs == {ORDERS: {}, ONE: {"a": "2"}}


def test_throttles_of_a_deleted_topic_can_be_removed_but_not_set() -> None:
    gone = (TOPIC, "gone")
    front = Front(throttles({(gone, LEADER_REPLICAS): "0:1", (gone, FOLLOWER_REPLICAS): "0:1"}))
    assert front.alter(incremental({gone: [(LEADER_REPLICAS, SET, "0:2")]})) == {gone: 3}
    assert front.alter(incremental({gone: [(name, DELETE, None) for name in LISTS]})) == {gone: 0}
    assert front.stored == {}


# Permission


def test_principals_that_may_not_alter_quotas_are_refused() -> None:
    front = Front(denies="User:{} is none of Weir's admins.")
    asked = incremental(
        {
            ONE: [(LEADER_RATE, SET, "5"), ("log.cleaner.threads", SET, "2")],
            ORDERS: [(LEADER_REPLICAS, SET, "*")],
            BILLS: [(RETENTION, SET, "2")],
        }
    )
    response_ = front.ask(asked, 1)
    found = {entry.resource_name: entry.error_code for entry in response_.responses}
    assert found == {"1": 31, "orders": 29, "bills": 0}
    text = next(entry.error_message for entry in response_.responses if entry.resource_name == "1")
    assert text == (
        "User:admin is none of Weir's admins. Weir keeps the replication throttles: its setting quota_admins "
        "names who may alter them."
    )
    assert front.admin.rejections == 1
    assert front.stored == {}
    assert front.broker.configs == {BILLS: {RETENTION: "2"}}


def test_alterconfigs_of_a_principal_without_permission_leaves_throttles_that_it_does_not_name() -> None:
    front = Front(throttles({(ORDERS, LEADER_REPLICAS): "*"}), denies="no")
    assert front.alter(replacing({ORDERS: {RETENTION: "5"}})) == {ORDERS: 0}
    assert front.alter(replacing({ORDERS: {RETENTION: "6", LEADER_REPLICAS: "*"}})) == {ORDERS: 0}
    assert front.alter(replacing({ORDERS: {LEADER_REPLICAS: "0:1"}})) == {ORDERS: 29}
    assert front.stored == {(ORDERS, LEADER_REPLICAS): "*"}
    assert front.broker.configs == {ORDERS: {RETENTION: "6"}}


def test_protected_topics_are_refused_first_also_in_large_requests() -> None:
    """A large request is decoded by a query."""
    for others in (1, 200):
        front = Front(protected=("__weir_quotas",), broker=config_cluster("orders", *map(str, range(200))))
        ours = (TOPIC, "__weir_quotas")
        asked = incremental(
            {ours: [(LEADER_REPLICAS, SET, "*"), (RETENTION, SET, "1")]}
            | {(TOPIC, str(number)): [(LEADER_REPLICAS, SET, "0:1")] for number in range(others)}
        )
        expected = {ours: 29} | {(TOPIC, str(number)): 0 for number in range(others)}
        assert front.alter(asked) == expected
        assert set(front.stored) == {((TOPIC, str(number)), LEADER_REPLICAS) for number in range(others)}
        assert front.broker.configs == {}


# Requests that Weir leaves alone


def test_requests_without_throttles_pass_unchanged() -> None:
    front = Front()
    with Playbook(connection=front.connection) as play:
        for number, (api_key, version) in enumerate(
            each_version(ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.DESCRIBE_CONFIGS),
            start=1,
        ):
            asked = {
                ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental({ORDERS: [(RETENTION, SET, "5")]}),
                ApiKey.ALTER_CONFIGS: replacing({ORDERS: {RETENTION: "5"}}),
                ApiKey.DESCRIBE_CONFIGS: describing(ORDERS, ONE),
            }[api_key]
            play.forwards(request(asked, version, number))


def test_malformed_requests_reach_the_broker_and_are_counted() -> None:
    front = Front(throttles({(ORDERS, LEADER_REPLICAS): "*"}))
    with Playbook(connection=front.connection) as play:
        for number, (api_key, version) in enumerate(
            each_version(ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.DESCRIBE_CONFIGS),
            start=1,
        ):
            tags = b"\x00" if request_header_version(api_key, version) == 2 else None
            head = header(api_key, version, number, b"app", tags=tags)
            play.forwards(framed(head + b"\x00\x00\x00\x09" + LEADER_REPLICAS.encode()))
    assert sum(front.connection.counters.requests_unread.values()) == 10


def test_unknown_versions_are_refused_only_where_weir_keeps_the_throttles() -> None:
    for api_key in (ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS, ApiKey.DESCRIBE_CONFIGS):
        frame = unknown_request(api_key, 99)
        with Playbook(connection=Front().connection) as play:
            play.client(frame)
            play.violation(CloseReason.REQUEST_VERSION_UNKNOWN, saying="v99")
        for keeper in ("brokers", None):
            with Playbook(connection=Front(keeper=keeper).connection) as play:
                play.forwards(frame)


def test_throttles_that_brokers_keep_pass_and_are_read_again() -> None:
    front = Front(keeper="brokers")
    with Playbook(connection=front.connection) as play:
        for number, (api_key, version) in enumerate(
            each_version(ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.ALTER_CONFIGS), start=1
        ):
            asked = (
                incremental({ONE: [(LEADER_RATE, SET, "5")]})
                if api_key == ApiKey.INCREMENTAL_ALTER_CONFIGS
                else replacing({ONE: {LEADER_RATE: "5"}})
            )
            play.relays(
                kio_request(asked, version, number), response(_all_good(api_key, ONE), version, number)
            )
            assert front.admin.broker_alterations == number
    assert front.stored == {}


def test_alterations_of_other_configurations_cause_no_reading_of_the_brokers_throttles() -> None:
    """Each reading asks all brokers for all topics, and any client may send such a request."""
    front = Front(keeper="brokers")
    with Playbook(connection=front.connection) as play:
        asked = incremental({ONE: [("log.retention.ms", SET, "5")]})
        answered = response(_all_good(ApiKey.INCREMENTAL_ALTER_CONFIGS, ONE), 1, 1)
        play.relays(kio_request(asked, 1, 1), answered)
    assert front.admin.broker_alterations == 0


# Describing


DESCRIBED: Final = throttles(
    {
        (ORDERS, LEADER_REPLICAS): "0:1",
        (ONE, LEADER_RATE): "5",
        (ALL, LEADER_RATE): "7",
        (ALL, FOLLOWER_RATE): "8",
    }
)


def test_descriptions_have_weirs_throttles_in_every_version() -> None:
    broker = config_cluster(configs={ORDERS: {LEADER_REPLICAS: "", RETENTION: "1"}, ONE: {"a": "1"}})

    def check(version: int) -> None:
        front = Front(DESCRIBED, broker=broker)
        found = front.ask(describing(ORDERS, BILLS, ONE, ALL, synonyms=version > 0), version)
        told = {
            (result.resource_type, result.resource_name): {
                config.name: (config.value, config.config_source, config.config_type)
                for config in result.configs
            }
            for result in found.results
        }
        no_type = version < 3

        def entry(value: str, source: int, type_: int) -> tuple[str, int, int]:
            return value, source if version else -1, 0 if no_type else type_

        assert told == {
            ORDERS: {RETENTION: entry("1", 1, 0), LEADER_REPLICAS: entry("0:1", 1, 7)},
            BILLS: {},
            ONE: {"a": entry("1", 2, 0), LEADER_RATE: entry("5", 2, 5), FOLLOWER_RATE: entry("8", 3, 5)},
            ALL: {LEADER_RATE: entry("7", 3, 5), FOLLOWER_RATE: entry("8", 3, 5)},
        }
        own = [config for result in found.results for config in result.configs if "throttled" in config.name]
        assert not any(config.is_default or config.read_only or config.is_sensitive for config in own)
        if version:
            synonyms = [(s.name, s.value, s.source) for s in own[1].synonyms]
            assert synonyms == [(LEADER_RATE, "5", 2), (LEADER_RATE, "7", 3)]

    check_each(versions(ApiKey.DESCRIBE_CONFIGS) or (), check)


def test_a_list_too_long_for_a_message_is_described_as_null() -> None:
    """A quota file may have one."""
    front = Front(throttles({(ORDERS, LEADER_REPLICAS): "1:1," * 9000 + "1:2"}))
    for version in versions(ApiKey.DESCRIBE_CONFIGS) or ():
        found = front.ask(describing(ORDERS), version)
        assert [config.value for config in found.results[0].configs] == [None]


def test_a_list_cannot_grow_too_long_for_a_message() -> None:
    front = Front(throttles({(ORDERS, LEADER_REPLICAS): ",".join(f"{number}:1" for number in range(5000))}))
    more = ",".join(f"{number}:2" for number in range(4000))
    assert front.alter(incremental({ORDERS: [(LEADER_REPLICAS, APPEND, more)]})) == {ORDERS: INVALID_CONFIG}


def test_throttles_are_altered_and_described_in_versions_that_the_broker_lacks() -> None:
    oldest = {int(k): VersionRange(0, 0) for k in (ApiKey.ALTER_CONFIGS, ApiKey.DESCRIBE_CONFIGS)}
    front = Front(DESCRIBED, spoken=everything() | oldest, uplift=True)
    assert front.alter(replacing({ORDERS: {LEADER_REPLICAS: "0:5", RETENTION: "1"}}), 1) == {ORDERS: 0}
    assert front.broker.configs == {ORDERS: {RETENTION: "1"}}
    configs = front.ask(describing(ORDERS), 1).results[0].configs
    assert {config.name: config.value for config in configs} == {LEADER_REPLICAS: "0:5", RETENTION: "1"}


# Any mix, against a broker that keeps all

NAMES: Final = {TOPIC: (*LISTS, RETENTION), BROKER: (*RATES, "log.cleaner.threads")}
VALUES: Final = st.sampled_from(["0:1", "0:2,1:1", "*", "none", "", "x", "7", "-1", "1:1,", "0:1,*"])


@st.composite
def _changes(draw: st.DrawFn) -> dict[Resource, Ops]:
    resources = draw(st.lists(st.sampled_from([ORDERS, BILLS, ONE, ALL]), unique=True, min_size=1))
    found: dict[Resource, Ops] = {}
    for resource in resources:
        names = st.sampled_from([*NAMES[resource[0]], *(LISTS if resource[0] == TOPIC else RATES)])
        ops = st.tuples(names, st.integers(0, 3), VALUES | st.none())
        found[resource] = draw(st.lists(ops, max_size=4))
    return found


@given(
    st.lists(st.tuples(st.sampled_from(["incremental", "replacing"]), _changes(), st.booleans()), max_size=8)
)
@settings(deadline=None)
def test_any_mix_of_configurations_ends_as_at_a_broker_that_keeps_all(
    steps: list[tuple[str, dict[Resource, Ops], bool]],
) -> None:
    front, model = Front(), config_cluster()
    for kind, changes, validate_only in steps:
        if kind == "incremental":
            asked = incremental(changes, validate_only=validate_only)
        else:
            named = {at: {name: value for name, _op, value in ops} for at, ops in changes.items()}
            asked = replacing(named, validate_only=validate_only)
        answered: Any = model.alter_configs(asked)
        expected = {
            (entry.resource_type, entry.resource_name): entry.error_code == 0 for entry in answered.responses
        }
        found = {at: code == 0 for at, code in front.alter(asked).items()}
        assert found == expected
        merged: dict[Resource, Values] = {at: dict(its) for at, its in front.broker.configs.items()}
        for (at, name), value in front.stored.items():
            merged.setdefault(at, {})[name] = value
        assert _plain(merged) == _plain(model.configs)


def _plain(configs: dict[Resource, Values]) -> dict[Resource, Values]:
    """Without resources that have nothing, and without empty elements of lists."""
    return {
        at: {
            name: ",".join(part for part in (value or "").split(",") if part) if name in LISTS else value
            for name, value in its.items()
        }
        for at, its in configs.items()
        if its
    }
