"""DescribeClientQuotas and AlterClientQuotas as a connection answers them.

Codes and texts are those of Kafka's ClientQuotaControlManager, ClientQuotasImage and KafkaApis (3.9, 4.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.proxy.client_quotas import (
    ALICE,
    CONNECT,
    FETCH,
    INVALID,
    MUTATE,
    PRODUCE,
    QUESTION,
    Managed,
    Parts,
    alter,
    altered,
    answer_of,
    component,
    connection_of,
    describe,
    entry,
    results,
    shown,
    vouch,
)
from tests.proxy.client_quotas_cases import BAD_ENTRIES, BAD_FILTERS, FILTERS
from tests.proxy.playbook import Playbook
from tests.proxy.wire import Wire, new_connection
from tests.wire.frames import body_of, header, request, response, split, unknown_request, unknown_response
from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    Message,
    MetadataResponse,
)
from weir.protocol.pieces import at_once
from weir.protocol.primitives import write_uvarint
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.connection import Connection
from weir.proxy.counters import Counters
from weir.proxy.handlers.plans import Plans
from weir.proxy.handlers.quota_api.alterations import Alterations, read_alterations
from weir.proxy.handlers.quota_api.client_quotas import AT_ONCE_MAX, DENIED_BYTES_MAX
from weir.proxy.handlers.quota_api.filters import described, read_filter
from weir.quotas import DEFAULT, Entity, Prefix, QuotaKey, QuotaTable

NOT_ALLOWED: Final = 31
TOO_LARGE: Final = 44
FAILED: Final = -1


def asked(
    connection: Connection, message: DescribeClientQuotasRequest, version: int = 1
) -> DescribeClientQuotasResponse:
    return answer_of(connection, message, version, DescribeClientQuotasResponse)


def checked(request: AlterClientQuotasRequest) -> Alterations:
    return at_once(read_alterations(request))


# Describe: who matches


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("name", FILTERS)
def test_describeclientquotas_returns_the_matching_entities(name: str, version: int) -> None:
    message, count = FILTERS[name]
    assert len(shown(asked(connection_of(Managed()), message, version))) == count


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(("message", "code", "text"), BAD_FILTERS, ids=[text for *_, text in BAD_FILTERS])
def test_describeclientquotas_refuses_invalid_filters_as_kafka(
    message: DescribeClientQuotasRequest, code: int, text: str, version: int
) -> None:
    answer = asked(connection_of(Managed()), message, version)
    assert (answer.error_code, answer.error_message, answer.entries) == (code, text, None)


def test_prefixes_have_the_entity_type_that_redpanda_gives_them() -> None:
    """`rpk cluster quotas` and Redpanda's console send it. Filters by client-id do not find prefixes."""
    whole: Parts = {"client-id-prefix": "ap"}
    of_alice: Parts = {"user": "alice", **whole}
    changes = checked(
        alter(entry(whole, {"producer_byte_rate": 1.0}), entry(of_alice, {"producer_byte_rate": 2.0}))
    )
    key = QuotaKey.PRODUCER_BYTE_RATE
    assert changes.changes == {
        (Entity(client_id=Prefix("ap")), key): 1.0,
        (Entity("alice", Prefix("ap")), key): 2.0,
    }
    assert [refused for _wire, refused in changes.outcomes.values()] == [None, None]
    table = QuotaTable({(Entity(client_id="ap"), key): 3.0}).altered(changes.changes)
    connection = connection_of(Managed(table))
    for components, rates in {
        (): [1.0, 2.0, 3.0],
        (("client-id-prefix", 2, None),): [1.0, 2.0],
        (("client-id-prefix", 0, "ap"), ("user", 0, "alice")): [2.0],
        (("client-id-prefix", 1, None),): [],
        (("client-id", 2, None),): [3.0],
    }.items():
        answer = asked(connection, describe(*(component(*each) for each in components)))
        assert sorted(values["producer_byte_rate"] for values in shown(answer).values()) == rates, components


NAMES: Final = st.sampled_from(["a", "b", None])
ENTITIES: Final = st.one_of(
    st.fixed_dictionaries({"user": NAMES}),
    st.fixed_dictionaries({"client-id": NAMES}),
    st.fixed_dictionaries({"user": NAMES, "client-id": NAMES}),
    st.fixed_dictionaries({"ip": st.sampled_from(["1.1.1.1", "::1", None])}),
)


def entity_of(parts: Parts) -> Entity:
    user, client_id, ip = (
        DEFAULT if kind in parts and parts[kind] is None else parts.get(kind)
        for kind in ("user", "client-id", "ip")
    )
    return Entity(user=user, client_id=client_id, ip=ip)


def found_by_kafka(
    entities: Sequence[Parts], exact: Parts, types: set[str], *, strict: bool
) -> set[frozenset[tuple[str, str | None]]]:
    """As ClientQuotasImage.matches narrows candidates down, by name, by type, then by number of types."""
    candidates = [dict(parts) for parts in entities]
    if not exact and not types:
        candidates = [] if strict else candidates
    for kind, name in exact.items():
        candidates = [parts for parts in candidates if kind in parts and parts[kind] == name]
    for kind in types:
        candidates = [parts for parts in candidates if kind in parts]
    if strict:
        candidates = [parts for parts in candidates if len(parts) == len(exact) + len(types)]
    return {frozenset(parts.items()) for parts in candidates}


@given(
    entities=st.lists(ENTITIES, max_size=8),
    exact=st.one_of(st.just({}), ENTITIES),
    types=st.sets(st.sampled_from(["user", "client-id"]), max_size=2),
    strict=st.booleans(),
)
def test_describeclientquotas_matches_entities_as_kafka(
    entities: list[Parts], exact: Parts, types: set[str], strict: bool
) -> None:
    types = set() if "ip" in exact else types - set(exact)
    table = QuotaTable({(entity_of(parts), CONNECT if "ip" in parts else PRODUCE): 1.0 for parts in entities})
    components = [component(kind, 1 if name is None else 0, name) for kind, name in exact.items()]
    components += [component(kind, 2) for kind in types]
    answer = described(table, read_filter(describe(*components, strict=strict)))
    assert set(shown(answer)) == found_by_kafka(entities, exact, types, strict=strict)


def test_a_large_quota_table_is_described_in_a_thread_while_later_requests_wait() -> None:
    quotas = {(Entity(user=f"u{number}"), PRODUCE): 1.0 for number in range(AT_ONCE_MAX + 1)}
    quota_admin = Managed(QuotaTable(quotas))
    connection = connection_of(quota_admin)
    with Playbook(connection=connection) as play:
        play.client(request(describe(), 1, 1) + unknown_request(999, 0, 2))
        play.to_broker(request(QUESTION, 1, 1))
        play.broker(response(MetadataResponse(), 1, 1))
        play.silent()
        quota_admin.computing.pop()()
        play.at(1)
        (answer,) = split(bytes(play.wire.to_client))
        play.wire.to_client.clear()
        assert len(shown(body_of(answer, DescribeClientQuotasResponse, 1))) == AT_ONCE_MAX + 1
        play.to_broker(unknown_request(999, 0, 2))


@pytest.mark.parametrize("version", [0, 1])
def test_describing_a_name_too_long_for_the_version_is_an_error_code(version: int) -> None:
    connection = connection_of(Managed(QuotaTable({(Entity(user="x" * 40_000), PRODUCE): 1.0})))
    assert asked(connection, describe(), version).error_code == FAILED


# Alter: what it comes to


@pytest.mark.parametrize("version", [0, 1])
def test_alterclientquotas_sets_and_removes_quotas_of_several_entities(version: int) -> None:
    quota_admin = Managed()
    message = alter(
        entry({"user": "alice"}, {"producer_byte_rate": 10.0, "consumer_byte_rate": None}),
        entry(
            {"user": None, "client-id": "app"}, {"controller_mutation_rate": 0.25, "request_percentage": 12.5}
        ),
        entry({"ip": None}, {"connection_creation_rate": 5.0}),
        entry({"ip": "::1"}, {"connection_creation_rate": None}),
    )
    answer = altered(connection_of(quota_admin), message, version)
    assert [code for _entity, code, _text in results(answer)] == [0, 0, 0, 0]
    assert [text for _entity, _code, text in results(answer)] == [None] * 4
    assert [entity for entity, _code, _text in results(answer)] == [
        {"user": "alice"},
        {"user": None, "client-id": "app"},
        {"ip": None},
        {"ip": "::1"},
    ]
    ((changes, who, peer),) = quota_admin.asked
    assert (who, peer) == ("admin", "10.9.8.7:4711")
    assert changes == {
        (ALICE, PRODUCE): 10.0,
        (ALICE, FETCH): None,
        (Entity(user=DEFAULT, client_id="app"), MUTATE): 0.25,
        (Entity(user=DEFAULT, client_id="app"), QuotaKey.REQUEST_PERCENTAGE): 12.5,
        (Entity(ip=DEFAULT), CONNECT): 5.0,
        (Entity(ip="::1"), CONNECT): None,
    }


def test_the_alterclientquotas_response_waits_for_the_quota_store() -> None:
    quota_admin = Managed(answers=False)
    with Playbook(connection=connection_of(quota_admin)) as play:
        message = alter(entry({"user": "alice"}, {"producer_byte_rate": 10.0}))
        play.client(unknown_request(999, 0, 1) + request(message, 1, 2) + unknown_request(999, 0, 3))
        play.to_broker(unknown_request(999, 0, 1), request(QUESTION, 1, 2))
        play.broker(unknown_response(1), response(MetadataResponse(), 1, 2))
        play.to_client(unknown_response(1))
        quota_admin.waiting.pop()(None)
        play.at(1)
        answer = body_of(bytes(play.wire.to_client), AlterClientQuotasResponse, 1)
        play.wire.to_client.clear()
        assert results(answer) == [({"user": "alice"}, 0, None)]
        play.to_broker(unknown_request(999, 0, 3))


def test_a_failing_quota_store_is_an_error_of_every_valid_entry() -> None:
    quota_admin = Managed(answers=False)
    wire = Wire(connection_of(quota_admin))
    message = alter(
        entry({"user": "alice"}, {"producer_byte_rate": 10.0}), entry({}, {"producer_byte_rate": 1.0})
    )
    wire.feed(0, client=request(message, 1))
    vouch(wire)
    quota_admin.waiting.pop()("the disk is full")
    wire.feed(1)
    answer = body_of(bytes(wire.to_client), AlterClientQuotasResponse, 1)
    assert results(answer) == [
        ({"user": "alice"}, FAILED, "the disk is full"),
        ({}, INVALID, "Invalid empty client quota entity"),
    ]


def test_alterclientquotas_with_validate_only_changes_nothing() -> None:
    quota_admin = Managed()
    message = alter(
        entry({"user": "alice"}, {"producer_byte_rate": 10.0}),
        entry({"user": "bob"}, {"producer_byte_rate": 0.0}),
        validate_only=True,
    )
    assert results(altered(connection_of(quota_admin), message)) == [
        ({"user": "alice"}, 0, None),
        ({"user": "bob"}, INVALID, "Quota producer_byte_rate must be greater than 0"),
    ]
    assert quota_admin.asked == []


def test_ip_entities_are_normalized_and_returned_in_the_clients_spelling() -> None:
    quota_admin = Managed(QuotaTable({(Entity(ip="::1"), CONNECT): 1.0}))
    message = alter(entry({"ip": "0:0::0001"}, {"connection_creation_rate": 5.0}))
    assert results(altered(connection_of(quota_admin), message)) == [({"ip": "0:0::0001"}, 0, None)]
    assert [changes for changes, *_ in quota_admin.asked] == [{(Entity(ip="::1"), CONNECT): 5.0}]
    found = shown(asked(connection_of(quota_admin), describe(component("ip", 0, "0::1"))))
    assert found == {frozenset({("ip", "::1")}): {"connection_creation_rate": 1.0}}


@pytest.mark.parametrize(("entity", "ops", "text"), BAD_ENTRIES, ids=[text for *_, text in BAD_ENTRIES])
def test_alterclientquotas_refuses_an_invalid_entry_and_applies_valid_ones(
    entity: Parts, ops: dict[str, float | None], text: str
) -> None:
    quota_admin = Managed()
    good = entry({"user": "good"}, {"producer_byte_rate": 5.0})
    bad = entry(entity, {"consumer_byte_rate": None, **ops})
    answer = altered(connection_of(quota_admin), alter(bad, good))
    assert results(answer) == [(entity, INVALID, text), ({"user": "good"}, 0, None)]
    assert [changes for changes, *_ in quota_admin.asked] == [{(Entity(user="good"), PRODUCE): 5.0}]


def test_a_repeated_entity_is_altered_once_and_reported_as_in_kafka() -> None:
    found = checked(
        alter(
            entry({"user": "a"}, {"producer_byte_rate": 1.0}),
            entry({"user": "a"}, {"consumer_byte_rate": 2.0}),
        )
    )
    ((_wire, refused),) = found.outcomes.values()
    assert refused is not None
    assert refused.text == "Ignoring duplicate entity ClientQuotaEntity(entries={user=a})"
    assert found.changes == {(Entity(user="a"), PRODUCE): 1.0}


# Who may


@pytest.mark.parametrize("version", [0, 1])
def test_a_user_who_is_no_admin_is_denied_and_changes_no_quota(version: int) -> None:
    quota_admin = Managed(denies="{} is no admin")
    connection = connection_of(quota_admin, user="mallory")
    answer = asked(connection, describe(), version)
    assert (answer.error_code, answer.error_message, answer.entries) == (
        NOT_ALLOWED,
        "mallory is no admin",
        None,
    )
    message = alter(entry({"user": "alice", "client-id": None}, {"producer_byte_rate": None}))
    told = altered(connection, message, version)
    assert results(told) == [({"user": "alice", "client-id": None}, NOT_ALLOWED, "mallory is no admin")]
    assert quota_admin.asked == []


UNREADABLE: Final = b"\xff" * 15_000
"""A body that no decoder gets through."""


def array_of(count: int, version: int) -> bytes:
    out = bytearray(count.to_bytes(4) if version == 0 else b"")
    if version:
        write_uvarint(out, count + 1)
    return bytes(out)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("count", "denies", "code", "text"),
    [
        (1, "no", NOT_ALLOWED, "no"),
        (5000, "no", NOT_ALLOWED, "no"),
        (10_001, None, TOO_LARGE, "Unable to perform excessively large batch operation."),
    ],
    ids=["one entity, denied", "many entities, denied", "more entities than a controller takes"],
)
def test_a_refused_alteration_is_one_error_for_an_unread_body(
    count: int, denies: str | None, code: int, text: str, version: int
) -> None:
    management = Managed(denies=denies)
    wire = Wire(connection_of(management))
    wire.feed(0, client=header_of(49, 0, version=version, body=array_of(count, version) + UNREADABLE))
    assert results(body_of(bytes(wire.to_client), AlterClientQuotasResponse, version)) == [({}, code, text)]
    assert management.asked == []


@pytest.mark.parametrize("version", [0, 1])
def test_a_denied_description_is_one_error_for_an_unread_body(version: int) -> None:
    wire = Wire(connection_of(Managed(denies="no")))
    wire.feed(0, client=header_of(48, 0, version=version, body=UNREADABLE))
    told = body_of(bytes(wire.to_client), DescribeClientQuotasResponse, version)
    assert (told.error_code, told.error_message, told.entries) == (NOT_ALLOWED, "no", None)


@pytest.mark.parametrize("version", [0, 1])
def test_an_admins_filter_of_many_components_is_refused_unread(version: int) -> None:
    wire = Wire(connection_of(Managed()))
    wire.feed(0, client=header_of(48, 0, version=version, body=array_of(5000, version) + UNREADABLE))
    assert body_of(bytes(wire.to_client), DescribeClientQuotasResponse, version).error_code == INVALID


def test_an_admin_may_make_ten_thousand_changes_with_a_request_and_no_more() -> None:
    management = Managed()
    changes = [(f"{number}", None) for number in range(10_000)]
    assert results(altered(connection_of(management), alter(entry({"user": "a"}, changes)))) == [
        ({"user": "a"}, 0, None)
    ]
    answer = altered(connection_of(management), alter(entry({"user": "a"}, [*changes, ("one more", None)])))
    assert [code for _entity, code, _text in results(answer)] == [TOO_LARGE]


def test_client_quota_requests_are_denied_without_admins() -> None:
    """A connection that is given no quota_admin."""
    connection = new_connection(plans=Plans(Counters(), manages_quotas=True))
    assert asked(connection, describe()).error_code == NOT_ALLOWED


def test_client_quota_requests_are_authorized_for_the_current_principal() -> None:
    """Another principal after re-authentication."""

    class OnlyAdmin(Managed):
        def rejection(self, user: str, _peer: str) -> str | None:
            return None if user == "admin" else "no"

    connection = connection_of(OnlyAdmin(), user="mallory")
    assert asked(connection, describe()).error_code == NOT_ALLOWED
    connection.client.become("admin")
    assert asked(connection, describe()).error_code == 0
    connection.client.become("mallory")
    assert asked(connection, describe()).error_code == NOT_ALLOWED


def test_each_client_quota_request_waits_for_a_response_of_the_broker() -> None:
    """It closes connections that have not authenticated, or whose session has expired."""
    quota_admin = Managed()
    with Playbook(connection=connection_of(quota_admin)) as play:
        for number in (1, 2):
            play.client(request(describe(component("user", 0, "bob")), 1, number))
            play.to_broker(request(QUESTION, 1, number))
            play.broker(response(MetadataResponse(), 1, number))
            play.to_client(response(DescribeClientQuotasResponse(entries=[]), 1, number))
        for number in (3, 4):
            play.client(request(alter(entry({"user": "a"}, {"producer_byte_rate": 1.0})), 1, number))
            play.to_broker(request(QUESTION, 1, number))
            assert len(quota_admin.asked) == number - 3
            play.broker(response(MetadataResponse(), 1, number))
            assert len(quota_admin.asked) == number - 2
            assert play.wire.to_client
            play.wire.to_client.clear()


# What peers may send


def test_client_quota_requests_are_buffered_up_to_a_megabyte() -> None:
    quota_admin = Managed()
    entries = [entry({"user": f"user {number:05}"}, {"producer_byte_rate": 1.0}) for number in range(8000)]
    message = request(alter(*entries), 0)
    assert 256 * 1024 < len(message) < 1024 * 1024
    answer = altered(connection_of(quota_admin), alter(*entries), 0)
    assert len(answer.entries) == 8000
    with Playbook(connection=connection_of(Managed())) as play:
        play.client(request(alter(*entries, *entries, *entries), 0))
        play.violation(CloseReason.REQUEST_TOO_LARGE)


@pytest.mark.parametrize("api_key", [48, 49])
def test_a_large_client_quota_request_of_a_denied_user_closes_the_connection(api_key: int) -> None:
    with Playbook(connection=connection_of(Managed(denies="no"))) as play:
        play.client(header_of(api_key, DENIED_BYTES_MAX + 1))
        play.violation(CloseReason.REQUEST_TOO_LARGE)


@pytest.mark.parametrize("message", [describe(), alter(entry({"user": "u"}, {"producer_byte_rate": 1.0}))])
def test_a_denied_client_quota_request_in_pieces_is_answered_once(message: Message) -> None:
    quota_admin = Managed(denies="no")
    wire = Wire(connection_of(quota_admin))
    frame = request(message, 1)
    for position in range(len(frame)):
        wire.feed(0, client=frame[position : position + 1])
    assert len(split(bytes(wire.to_client))) == 1
    assert quota_admin.rejections == 1


def header_of(api_key: int, length: int, *, version: int = 1, body: bytes = b"") -> bytes:
    """The beginning of a request of this length; 0: with this body, the whole request."""
    head = header(api_key, version, 1, b"app", tags=b"\x00" if version else None) + body
    return (length or len(head)).to_bytes(4, "big") + head


# What is offered

BROKER: Final = {int(ApiKey.PRODUCE): (0, 2), int(ApiKey.API_VERSIONS): (0, 0)}
"""A part of what 0.10.2 says."""


def offered(
    spoken: Mapping[int, tuple[int, int]], *, manages: bool, newest: bool = True
) -> dict[int, tuple[int, int]]:
    """What a client is told behind a broker that says this, and knows ApiVersions v0 only.

    The newest clients ask in v3 first, as Java's do; others begin with v0.
    """
    answer = ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=least, max_version=most)
            for key, (least, most) in spoken.items()
        ]
    )
    wire = Wire(connection_of(Managed(), manages=manages))
    if newest:
        wire.feed(0, client=request(ApiVersionsRequest(), 3))
        wire.feed(0, broker=response(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), 0))
        wire.to_client.clear()
    wire.feed(0, client=request(ApiVersionsRequest(), 0))
    wire.feed(1, broker=response(answer, 0))
    told = body_of(bytes(wire.to_client), ApiVersionsResponse, 0)
    return {found.api_key: (found.min_version, found.max_version) for found in told.api_keys}


def test_client_quota_apis_are_offered_in_front_of_every_broker() -> None:
    assert offered(BROKER, manages=True) == {**BROKER, 48: (1, 1), 49: (1, 1)}, "v0 looks like a 2.6"
    assert offered({**BROKER, 48: (0, 0), 49: (0, 0)}, manages=True) == {**BROKER, 48: (0, 1), 49: (0, 1)}


def test_client_quota_requests_pass_to_brokers_that_store_quotas() -> None:
    quota_admin = Managed()
    with Playbook(connection=connection_of(quota_admin, manages=False)) as play:
        asks = request(describe(), 1, 1)
        play.forwards(asks)
        told = response(DescribeClientQuotasResponse(entries=[]), 1, 1)
        play.returns(told)
        assert quota_admin.broker_alterations == 0
        asks = request(alter(entry({"user": "a"}, {"producer_byte_rate": 1.0})), 1, 2)
        play.forwards(asks)
        told = response(AlterClientQuotasResponse(), 1, 2)
        play.returns(told)
        assert quota_admin.broker_alterations == 1
