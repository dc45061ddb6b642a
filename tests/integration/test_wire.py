"""All that real clients and brokers say decodes, re-encodes to the same bytes, and leaves nothing over."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.clients import KafkaPython, Librdkafka, create_topic
from tests.clients.exchange import some_messages
from tests.clients.pairs import VERSIONS
from tests.integration.conftest import StartWeir
from tests.integration.tap import HOST, Conversation, Tap
from tests.kafka.fixtures import StartCluster
from tests.kafka.releases import core_at
from weir.protocol.api import ApiKey, request_header_version, response_header_version
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.error_codes import ErrorCode
from weir.protocol.framing import (
    LENGTH,
    LENGTH_BYTES,
    REQUEST_HEAD,
    RESPONSE_HEAD,
    request_body,
    response_body,
)
from weir.protocol.messages import ProduceRequest, RequestHeader, ResponseHeader

pytestmark = [pytest.mark.broker]


@pytest.mark.parametrize("version", core_at(VERSIONS, core=("0.10.2.2", "4.4.0")))
def test_frames_of_real_clients_and_brokers_decode_to_the_last_byte(
    kafka_cluster: StartCluster, start_weir: StartWeir, topic: str, version: str
) -> None:
    cluster = kafka_cluster(version)
    weir = start_weir(cluster.bootstrap, options=("--set", f"advertised_host={HOST}"))
    with Tap(range(weir.port, weir.port + 2)) as tap:
        bootstrap = f"{HOST}:{weir.port}"
        create_topic(bootstrap, topic, partitions=2)
        messages = some_messages(50, 1000)
        for client in (Librdkafka(), KafkaPython()):
            client.produce(bootstrap, topic, messages, acks="all")
            client.produce(bootstrap, topic, messages, acks=0)
            client.consume(bootstrap, topic, 100, group=f"{topic}-{client.name}")
        Librdkafka().produce(bootstrap, topic, messages, config={"compression.type": "lz4", "linger.ms": 50})
        Librdkafka().produce(bootstrap, topic, some_messages(3, 1 << 20))
        Librdkafka().consume(bootstrap, topic, 250)
    seen: Counter[str] = Counter()
    for conversation in tap.conversations:
        seen += understood(conversation)
    assert {"PRODUCE", "FETCH", "METADATA", "FIND_COORDINATOR", "JOIN_GROUP", "OFFSET_COMMIT"} <= {
        name.split()[0] for name in seen
    }


def understood(conversation: Conversation) -> Counter[str]:
    seen: Counter[str] = Counter()
    expected: list[tuple[int, int, int]] = []
    for frame in frames(conversation.requests):
        _, api_key, version, correlation_id = REQUEST_HEAD.unpack_from(frame)
        header_version = request_header_version(api_key, version)
        body = request_body(frame, 0, len(frame), flexible=header_version == 2)
        same(RequestHeader, header_version, frame[LENGTH_BYTES:body])
        same(request_type(api_key), version, frame[body:])
        seen[f"{ApiKey(api_key).name} v{version}"] += 1
        if api_key == ApiKey.PRODUCE and codec(ProduceRequest, version).decode(frame, body).acks == 0:
            continue
        expected.append((correlation_id, api_key, version))
    for frame, (wanted, api_key, version) in zip(frames(conversation.responses), expected, strict=False):
        _, correlation_id = RESPONSE_HEAD.unpack_from(frame)
        assert correlation_id == wanted
        header_version = response_header_version(api_key, version)
        body = response_body(frame, 0, len(frame), flexible=header_version == 1)
        same(ResponseHeader, header_version, frame[LENGTH_BYTES:body])
        if api_key == ApiKey.API_VERSIONS and frame[body : body + 2] == unsupported():
            version = 0
        same(response_type(api_key), version, frame[body:])
    return seen


def unsupported() -> bytes:
    """How an ApiVersions response begins that refuses the version it was asked in."""
    return int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


def same(message: type, version: int, data: bytes | bytearray) -> None:
    again = codec(message, version).encode(codec(message, version).decode(data))
    assert again == bytes(data), f"{message.__name__} v{version}"


def frames(stream: bytearray) -> Iterator[bytearray]:
    """Whole frames, lengths included; the last one may have been cut when the connection closed."""
    position = 0
    while position + LENGTH_BYTES <= len(stream):
        (length,) = LENGTH.unpack_from(stream, position)
        stop = position + LENGTH_BYTES + length
        if stop > len(stream):
            return
        yield stream[position:stop]
        position = stop
