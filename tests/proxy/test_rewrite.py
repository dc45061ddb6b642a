"""Brokers' addresses: in every version, only they are changed, as our codec and as kio read the result."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import msgspec
import pytest

from tests.matrix import in_one_test
from tests.protocol import kio_side
from tests.protocol.generate import sample
from tests.proxy.playbook import Playbook
from tests.proxy.wire import Wire, in_turns, new_connection
from tests.wire.frames import body_of, framed, request, response, response_frame
from weir.protocol.codec import codec
from weir.protocol.error_codes import ErrorCode
from weir.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from weir.protocol.scanning.endpoint_mask import UNKNOWN_TAG
from weir.protocol.values import Message, schema_of
from weir.proxy.addresses import Address, AdvertisedAddresses, PortRange
from weir.proxy.close_reasons import CloseReason
from weir.proxy.connection.effects import SCANNED_ELEMENTS

REQUESTS: Final[dict[type[Message], type[Message]]] = {
    MetadataResponse: MetadataRequest,
    FindCoordinatorResponse: FindCoordinatorRequest,
    DescribeClusterResponse: DescribeClusterRequest,
    ProduceResponse: ProduceRequest,
    FetchResponse: FetchRequest,
    ShareFetchResponse: ShareFetchRequest,
    ShareAcknowledgeResponse: ShareAcknowledgeRequest,
    ApiVersionsResponse: ApiVersionsRequest,
}
FIRST: Final = {ProduceResponse: 10, FetchResponse: 16}
WITH_ADDRESSES: Final = [
    (message, version)
    for message in REQUESTS
    if message is not ApiVersionsResponse
    for version in schema_of(message).versions
    if version >= FIRST.get(message, 0)
]
IDS: Final = [f"{message.__name__}-v{version}" for message, version in WITH_ADDRESSES]
HOSTS: Final = {"longer": "a-broker-with-a-long-name.example.org", "shorter": "b", "equal": "wear"}
STREAMED: Final = (ProduceResponse, FetchResponse, ShareFetchResponse, ShareAcknowledgeResponse)
"""Responses that are forwarded in parts if they are larger than the buffer."""
EMPTY_TOPIC_BYTES: Final = 18
"""Length of a topic's id, an empty array and no tagged fields."""
BROKERS, CONTROLLERS = 1, 2
"""DescribeCluster's endpoint types."""
FAR_AWAY: Final = 5000
"""A node id that has no port."""


def nodes_of(message: Any, version: int) -> list[Any]:
    if isinstance(message, FindCoordinatorResponse):
        return message.coordinators if version >= 4 else [message]
    for name in ("brokers", "node_endpoints"):
        if hasattr(message, name):
            return getattr(message, name)  # type: ignore[no-any-return]  # a list in all of them
    raise AssertionError(message)


def with_nodes(message: type[Message], version: int, nodes: dict[int, Address]) -> Any:
    value: Any = sample(message, version)
    if isinstance(value, DescribeClusterResponse):
        value.endpoint_type = BROKERS
    (template,) = nodes_of(value, version)
    if template is value:
        ((node_id, (host, port)),) = nodes.items()
        return msgspec.structs.replace(value, node_id=node_id, host=host, port=port)
    key = "broker_id" if isinstance(value, DescribeClusterResponse) else "node_id"
    made = [
        msgspec.structs.replace(template, host=host, port=port, **{key: node_id})
        for node_id, (host, port) in nodes.items()
    ]
    nodes_of(value, version)[:] = made
    return value


def some_nodes(message: type[Message], version: int, host: str) -> dict[int, Address]:
    nodes = {1: Address(host, 9092), 7: Address(f"{host}.", 9093)}
    if message is FindCoordinatorResponse and version < 4:
        del nodes[7]
    return nodes


def ours(nodes: dict[int, Address], host: str = "weir") -> dict[int, Address]:
    return {node_id: Address(host, 19093 + node_id) for node_id in nodes}


def ask(play: Playbook, message: type[Message], version: int, correlation_id: int = 1) -> None:
    value = ProduceRequest(acks=1) if message is ProduceResponse else REQUESTS[message]()
    asked = request(value, version, correlation_id)
    play.forwards(asked)


@in_one_test
@pytest.mark.parametrize(("message", "version"), WITH_ADDRESSES, ids=IDS)
@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_broker_addresses_become_weirs_and_all_other_bytes_stay(
    message: type[Message], version: int, host: str
) -> None:
    nodes = some_nodes(message, version, host)
    with Playbook() as play:
        for correlation_id in (1, 2):  # the second from memory
            ask(play, message, version, correlation_id)
            play.broker(response(with_nodes(message, version, nodes), version, correlation_id))
            play.to_client(response(with_nodes(message, version, ours(nodes)), version, correlation_id))
        assert play.connection.addresses.address_book.nodes == nodes


@pytest.mark.parametrize("version", [1, 2])
def test_controllers_in_describecluster_keep_their_addresses(version: int) -> None:
    told = with_nodes(DescribeClusterResponse, version, {1: Address("controller.example.org", 9093)})
    told.endpoint_type = CONTROLLERS
    with Playbook() as play:
        ask(play, DescribeClusterResponse, version)
        play.returns(response(told, version))
        assert play.connection.addresses.address_book.nodes == {}


def kio_reads(message: type[Message], version: int, body: bytes) -> Any:
    """What kio makes of it; None if it does not know the version."""
    from kio.serial import entity_reader

    cls = kio_side.kio_class(schema_of(message).api_key, "response", version)
    if cls is None:
        return None
    entity, size = entity_reader(cls)(body, 0)
    assert size == len(body)
    return dataclasses.asdict(entity)


@in_one_test
@pytest.mark.parametrize(("message", "version"), WITH_ADDRESSES, ids=IDS)
def test_kio_reads_rewritten_responses_with_weirs_addresses(message: type[Message], version: int) -> None:
    """The oracle reads what comes out, and its own reading of what went in with the addresses replaced."""
    nodes = some_nodes(message, version, "kafka.example.org")
    value = codec(message, version).decode(
        codec(message, version).encode(_without_unknown_tags(with_nodes(message, version, nodes)))
    )
    body_before = codec(message, version).encode(value)
    read = kio_reads(message, version, body_before)
    if read is None:
        return  # versions that Kafka 4 removed: test_addresses_become_weirs has them
    with Playbook() as play:
        ask(play, message, version)
        play.broker(response(value, version))
        got = bytes(play.wire.to_client)
        play.wire.to_client.clear()
    after = kio_reads(message, version, got[-(len(got) - 8 - _flexible(message, version)) :])
    assert after == _replaced(read, ours(nodes))


def _flexible(message: type[Message], version: int) -> int:
    return int(version in schema_of(message).flexible)


def _without_unknown_tags(value: Any) -> Any:
    """kio refuses tags it does not know."""
    if isinstance(value, list):
        return [_without_unknown_tags(element) for element in value]
    if not isinstance(value, msgspec.Struct):
        return value
    fields = {name: _without_unknown_tags(getattr(value, name)) for name in value.__struct_fields__}
    if "unknown_tagged_fields" in fields:
        fields["unknown_tagged_fields"] = ()
    return type(value)(**fields)


def _replaced(read: Any, addresses: dict[int, Address]) -> Any:
    if isinstance(read, (list, tuple)):
        return type(read)(_replaced(element, addresses) for element in read)
    if not isinstance(read, dict):
        return read
    fields = {name: _replaced(value, addresses) for name, value in read.items()}
    if "host" in fields and "port" in fields:
        fields["host"], fields["port"] = addresses[fields["node_id" if "node_id" in fields else "broker_id"]]
    return fields


@in_one_test
@pytest.mark.parametrize(("message", "version"), WITH_ADDRESSES, ids=IDS)
def test_brokers_without_a_port_at_weir_are_omitted(message: type[Message], version: int) -> None:
    single = message is FindCoordinatorResponse
    nodes = {FAR_AWAY: Address("far", 1)} if single else {1: Address("near", 2), FAR_AWAY: Address("far", 1)}
    with Playbook() as play:
        ask(play, message, version)
        play.broker(response(with_nodes(message, version, nodes), version))
        if single:
            expected = with_nodes(message, version, {-1: Address("", -1)})
            nodes_of(expected, version)[0].error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        else:
            expected = with_nodes(message, version, ours({1: Address("near", 2)}))
        play.to_client(response(expected, version))


@pytest.mark.parametrize("version", list(schema_of(FindCoordinatorResponse).versions))
def test_a_missing_coordinator_stays_missing(version: int) -> None:
    answer = response(with_nodes(FindCoordinatorResponse, version, {-1: Address("", -1)}), version)
    with Playbook() as play:
        ask(play, FindCoordinatorResponse, version)
        play.returns(answer)


@in_one_test
@pytest.mark.parametrize(("message", "version"), WITH_ADDRESSES, ids=IDS)
def test_rewritten_responses_may_be_cut_anywhere(message: type[Message], version: int) -> None:
    nodes = some_nodes(message, version, "longer.example.org")
    answer = response(with_nodes(message, version, nodes), version)
    expected = response(with_nodes(message, version, ours(nodes)), version)
    for cut in range(1 + version % 13, len(answer), 13):  # the neighbouring versions are cut between these
        with Playbook() as play:
            ask(play, message, version)
            play.wire.feed(0, broker=answer[:cut])
            play.wire.feed(0, broker=answer[cut:])
            play.to_client(expected)


@in_one_test
@pytest.mark.parametrize(
    ("message", "version"), [(MetadataResponse, 0), (MetadataResponse, 13), (DescribeClusterResponse, 2)]
)
def test_a_response_with_more_brokers_than_clusters_have_ends_its_connection(
    message: type[Message], version: int
) -> None:
    for count, reason in ((2_000, None), (2_001, CloseReason.RESPONSE_MALFORMED)):
        connection = new_connection()
        wire = Wire(connection)
        wire.feed(0, client=request(REQUESTS[message](), version, 1))
        nodes = {node_id: Address("b", 9092) for node_id in range(count)}
        wire.feed(0, broker=response(with_nodes(message, version, nodes), version, 1))
        assert connection.effects.close_reason is reason


@pytest.mark.parametrize(
    ("message", "version"),
    [(m, v) for m, v in WITH_ADDRESSES if m not in {MetadataResponse, *STREAMED}],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_rewritten_responses_larger_than_the_buffer_are_kept_whole(
    message: type[Message], version: int
) -> None:
    nodes = some_nodes(message, version, "k" * 2000)
    with Playbook(buffer_bytes=500) as play:
        ask(play, message, version)
        play.broker(response(with_nodes(message, version, nodes), version))
        play.to_client(response(with_nodes(message, version, ours(nodes)), version))


def streamed(message: type[Message], version: int, host: str, bytes_: int = 5000) -> Any:
    """A response of at least this length that names nodes, and has no tagged fields that it need not have."""
    value = with_nodes(message, version, some_nodes(message, version, host))
    value.unknown_tagged_fields = ()
    if message in (FetchResponse, ShareFetchResponse):
        value.responses[0].partitions[0].records = b"r" * bytes_
    else:
        value.responses = value.responses * (bytes_ // 20)
    return value


def check_masked(answer: bytes, got: bytes, message: type[Message], version: int) -> None:
    assert len(got) == len(answer)
    assert b"kafka" in answer
    assert b"kafka" not in got
    read: Any = body_of(got, message, version)
    value: Any = body_of(answer, message, version)
    assert read.node_endpoints == []
    assert [tag for tag, _ in read.unknown_tagged_fields] == [UNKNOWN_TAG]
    assert msgspec.structs.replace(
        read, node_endpoints=value.node_endpoints, unknown_tagged_fields=()
    ) == msgspec.structs.replace(value)


@in_one_test
@pytest.mark.parametrize(
    ("message", "version"), [(m, v) for m, v in WITH_ADDRESSES if m in STREAMED], ids=str
)
def test_addresses_in_streamed_responses_are_masked(message: type[Message], version: int) -> None:
    """As many bytes are kept as fit into the buffer, however long the response is."""
    answer = response(streamed(message, version, "kafka"), version)
    with Playbook(buffer_bytes=1000) as play:
        ask(play, message, version)
        for start in range(0, len(answer), 700):
            play.wire.feed(0, broker=answer[start : start + 700])
            assert start + 700 - len(play.wire.to_client) <= 1000
        got = bytes(play.wire.to_client)
        play.wire.to_client.clear()
    check_masked(answer, got, message, version)


@in_one_test
@pytest.mark.parametrize(("message", "bytes_"), [(ShareFetchResponse, 1200), (ShareAcknowledgeResponse, 400)])
def test_addresses_in_streamed_share_responses_are_masked_at_any_cut(
    message: type[Message], bytes_: int
) -> None:
    answer = response(streamed(message, 1, "kafka", bytes_), 1)
    for cut in range(1000, len(answer), 5):
        with Playbook(buffer_bytes=1000) as play:
            ask(play, message, 1)
            play.wire.feed(0, broker=answer[:cut])
            play.wire.feed(0, broker=answer[cut:])
            got = bytes(play.wire.to_client)
            play.wire.to_client.clear()
        check_masked(answer, got, message, 1)


@pytest.mark.parametrize("host_bytes", [*range(100, 140), *range(16_360, 16_400)])
def test_addresses_of_any_length_in_a_streamed_share_response_are_masked(host_bytes: int) -> None:
    """The size of the field that no client knows is a varint, whose own size depends on it."""
    value = streamed(ShareFetchResponse, 1, "kafka")
    del value.node_endpoints[1:]
    value.node_endpoints[0].host = "kafka" * (host_bytes // 5) + "k" * (host_bytes % 5)
    answer = response(value, 1)
    with Playbook(buffer_bytes=1000) as play:
        ask(play, ShareFetchResponse, 1)
        play.broker(answer)
        got = bytes(play.wire.to_client)
        play.wire.to_client.clear()
    check_masked(answer, got, ShareFetchResponse, 1)


def test_a_streamed_share_response_that_ends_within_its_addresses_closes_the_connection() -> None:
    value = streamed(ShareFetchResponse, 1, "kafka")
    value.node_endpoints = []
    answer = bytearray(response(value, 1))
    assert answer[-2:] == b"\x01\x00"
    answer[-2] = 2
    with Playbook(buffer_bytes=1000) as play:
        ask(play, ShareFetchResponse, 1)
        play.broker(bytes(answer))
        play.violation(CloseReason.RESPONSE_MALFORMED, saying="ends within its last array")
        play.wire.to_client.clear()


@pytest.mark.parametrize("message", STREAMED)
def test_more_addresses_than_fit_into_a_turn_are_masked(message: type[Message]) -> None:
    """Decoding 250 KB of them took 97 ms. No leader moves to hundreds of brokers at once."""
    version = schema_of(message).versions.max
    value = streamed(message, version, "kafka", 100)
    value.node_endpoints = value.node_endpoints * 300
    answer = response(value, version)
    with Playbook() as play:
        ask(play, message, version)
        play.broker(answer)
        got = bytes(play.wire.to_client)
        play.wire.to_client.clear()
    check_masked(answer, got, message, version)


@in_one_test
@pytest.mark.parametrize("message", STREAMED)
@pytest.mark.parametrize("topics", [9_000, 40_000])
def test_addresses_behind_many_topics_are_masked_over_several_turns(
    message: type[Message], topics: int
) -> None:
    """In a response that fits into the buffer, and in one that does not."""
    version = schema_of(message).versions.max
    value = with_nodes(message, version, some_nodes(message, version, "kafka"))
    topic = type(value.responses[0])()
    value.responses, value.unknown_tagged_fields = [topic] * topics, ()
    answer = response(value, version)
    connection = new_connection()
    with Playbook(connection=connection) as play:
        ask(play, message, version)
        consumed = in_turns(connection, connection.broker_end, answer)
        check_masked(answer, b"".join(connection.effects.to_client), message, version)
        assert max(consumed) < EMPTY_TOPIC_BYTES * SCANNED_ELEMENTS + 500
        connection.effects.to_client.clear()


@pytest.mark.parametrize("message", [ProduceResponse, FetchResponse])
def test_many_tagged_fields_are_searched_for_addresses_over_several_turns(message: type[Message]) -> None:
    version = schema_of(message).versions.max
    body = codec(message, version).encode(message())[:-1] + b"\xff\xff\x03" + b"\x05\x00" * 0xFFFF
    answer = response_frame(schema_of(message).api_key, version, body)
    connection = new_connection()
    with Playbook(connection=connection) as play:
        ask(play, message, version)
        consumed = in_turns(connection, connection.broker_end, answer)
        assert b"".join(connection.effects.to_client) == answer
        assert max(consumed) < 2 * SCANNED_ELEMENTS + 100
        connection.effects.to_client.clear()


@pytest.mark.parametrize("message", [MetadataResponse, DescribeClusterResponse, ApiVersionsResponse])
def test_a_response_with_more_to_decode_than_a_cluster_has_closes_the_connection(
    message: type[Message],
) -> None:
    """The numbers of brokers and of APIs have no bound on the wire."""
    value: Any = sample(message, 0)
    array = value.api_keys if message is ApiVersionsResponse else value.brokers
    array *= 20_000
    answer = response(value, 0)
    with Playbook() as play:
        ask(play, message, 0)
        for start in range(0, len(answer), 100_000):
            if play.connection.effects.close_reason is None:
                play.wire.feed(0, broker=answer[start : start + 100_000])
        play.violation(CloseReason.RESPONSE_MALFORMED, saying="more than")
        assert not play.wire.to_client


def test_a_response_too_long_to_be_kept_whole_closes_the_connection() -> None:
    with Playbook(connection=new_connection(buffer_bytes=1000, kept_response_bytes_max=5000)) as play:
        ask(play, FindCoordinatorResponse, 4)
        play.broker(framed(bytes((0, 0, 0, 1)) + bytes(4997))[:2000])
        play.violation(CloseReason.RESPONSE_LENGTH_WRONG, saying="read whole")


@pytest.mark.parametrize("version", [0, 8, 12])
def test_a_changed_broker_address_is_rewritten_again(version: int) -> None:
    with Playbook() as play:
        for correlation_id, host in enumerate(("here", "there", "here"), 1):
            nodes = {1: Address(host, 9092)}
            ask(play, MetadataResponse, version, correlation_id)
            play.broker(response(with_nodes(MetadataResponse, version, nodes), version, correlation_id))
            play.to_client(
                response(with_nodes(MetadataResponse, version, ours(nodes)), version, correlation_id)
            )
            assert play.connection.addresses.address_book.nodes == nodes


def test_clients_of_different_advertised_addresses_get_different_ones() -> None:
    first = new_connection()
    second = new_connection()
    second.plans, second.addresses = (
        first.plans,
        AdvertisedAddresses("10.0.0.9", first.addresses.address_book),
    )
    nodes = {1: Address("kafka", 9092)}
    for connection, host in ((first, "weir"), (second, "10.0.0.9"), (first, "weir")):
        with Playbook(connection=connection) as play:
            ask(play, MetadataResponse, 9)
            play.broker(response(with_nodes(MetadataResponse, 9, nodes), 9))
            play.to_client(response(with_nodes(MetadataResponse, 9, ours(nodes, host)), 9))


def test_a_cached_rewritten_response_does_not_outlive_a_new_listener() -> None:
    """A node that had no port, and was left out, has one later: the same bytes get another answer."""
    connection = new_connection(ports=PortRange(19093, 19192))
    opened: list[int] = []

    def refuse(node_id: int, _port: int) -> None:
        if not opened:
            raise OSError("port taken")

    connection.addresses.address_book._open_listener = refuse
    nodes = {1: Address("kafka", 9092)}
    with Playbook(connection=connection) as play:
        ask(play, MetadataResponse, 9)
        play.broker(response(with_nodes(MetadataResponse, 9, nodes), 9))
        play.to_client(response(with_nodes(MetadataResponse, 9, {}), 9))
        opened.append(1)
        connection.addresses.address_book.observe(1, nodes[1])  # as discovery does every 30 s
        ask(play, MetadataResponse, 9)
        play.broker(response(with_nodes(MetadataResponse, 9, nodes), 9))
        play.to_client(response(with_nodes(MetadataResponse, 9, ours(nodes)), 9))


@in_one_test
@pytest.mark.parametrize(("message", "version"), WITH_ADDRESSES, ids=IDS)
def test_a_cut_response_body_is_the_brokers_violation(message: type[Message], version: int) -> None:
    nodes = some_nodes(message, version, "kafka")
    answer = response(with_nodes(message, version, nodes), version)
    head = 8 + _flexible(message, version)
    with Playbook() as play:
        ask(play, message, version)
        play.broker(framed(answer[4 : head + 3]))
        play.violation(CloseReason.RESPONSE_MALFORMED)


# ApiVersions


def ranges(*entries: tuple[int, int, int]) -> list[ApiVersionsResponse.ApiVersion]:
    return [
        ApiVersionsResponse.ApiVersion(api_key=key, min_version=low, max_version=high)
        for key, low, high in entries
    ]


@pytest.mark.parametrize("version", list(schema_of(ApiVersionsResponse).versions))
def test_apiversions_returns_the_versions_common_to_weir_and_broker(version: int) -> None:
    value = msgspec.structs.replace(sample(ApiVersionsResponse, version), error_code=0)
    fetch = schema_of(FetchResponse).versions
    brokers = ranges((1, 0, 99), (3, 2, 4), (18, 0, 3), (9999, 0, 1), (12, 50, 60))
    told = ranges((1, 0, fetch.max), (3, 2, 4), (18, 0, 5))  # KIP-1242: Weir asks the broker in 3
    for correlation_id in (1, 2):
        with Playbook() as play:
            ask(play, ApiVersionsResponse, version, correlation_id)
            play.broker(response(msgspec.structs.replace(value, api_keys=brokers), version, correlation_id))
            play.to_client(response(msgspec.structs.replace(value, api_keys=told), version, correlation_id))


@pytest.mark.parametrize("version", list(schema_of(ApiVersionsResponse).versions))
def test_an_apiversions_response_of_an_old_broker_in_version_0_is_accepted(version: int) -> None:
    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=ranges((18, 0, 2)))
    with Playbook() as play:
        ask(play, ApiVersionsResponse, version)
        play.returns(response(answer, 0))


def test_a_malformed_refusal_of_apiversions_is_returned_unchanged() -> None:
    """librdkafka's mock cluster (2.16) answers error 35 with an array of neither version 0 nor version 3."""
    with Playbook() as play:
        ask(play, ApiVersionsResponse, 3, 7)
        play.returns(bytes.fromhex("00000011 00000007 0023 01 0012 0000 0002 00000000"))
