"""A stub broker: it answers the requests of the loads with prepared responses.

The stub broker needs less CPU time than a real broker, and no Java, so the benchmark's tests use it. It
stores no records: it acknowledges produce requests and drops their records.
"""

from __future__ import annotations

import select
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final
from uuid import UUID

from bench.broker import READ, READ_SMALL, WRITTEN
from bench.frames import record_batch
from bench.rows import FETCH_BYTES, SMALL_BYTES, Topics
from tests.kafka.settings import HOST
from weir.protocol import (
    ApiKey,
    Message,
    codec,
    request_header_version,
    request_type,
    response_header_version,
    response_type,
)
from weir.protocol.framing import LENGTH, LENGTH_BYTES, REQUEST_HEAD, request_body
from weir.protocol.messages import (
    ApiVersionsResponse,
    FetchRequest,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)

TOPIC_IDS: Final = {WRITTEN: UUID(int=1), READ: UUID(int=2), READ_SMALL: UUID(int=3)}
TOPICS: Final = Topics(WRITTEN, TOPIC_IDS[READ], TOPIC_IDS[READ_SMALL])
VERSIONS: Final = {
    ApiKey.PRODUCE: (3, 11),
    ApiKey.FETCH: (4, 17),
    ApiKey.METADATA: (0, 12),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
}
"""Version ranges that the stub broker announces, those of Kafka 3.9, for the APIs that the loads and the
proxies use.
"""
BUFFER_BYTES: Final = 1 << 20
_MAIN: Final = "import sys; sys.path.insert(0, sys.argv.pop(1)); from bench.canned import main; main()"
WHOLE_BYTES: Final = 4096
"""Number of bytes that the stub broker keeps of a request; it skips the remaining bytes of a larger request.
"""
_CORRELATION_FROM: Final = 8
_CORRELATION_END: Final = REQUEST_HEAD.size


class Answers:
    """Builds responses and caches them without length and correlation id. Equal requests get the same cached
    bytes.
    """

    def __init__(self, *ports: int) -> None:
        """Answer as the cluster whose brokers have these ports; node ids are 0, 1, and so on."""
        self._ports = ports
        self._built: dict[bytes, bytes] = {}
        self._records = {
            TOPIC_IDS[READ]: record_batch(bytes(FETCH_BYTES)),
            TOPIC_IDS[READ_SMALL]: record_batch(bytes(SMALL_BYTES)),
        }

    def frame(self, request: bytes) -> bytes:
        """Return the response frame to a request, given as its first WHOLE_BYTES bytes, or all if it is
        shorter.
        """
        cut = len(request) == WHOLE_BYTES
        key = request[4:_CORRELATION_FROM] + (b"" if cut else request[_CORRELATION_END:])
        if (rest := self._built.get(key)) is None:
            rest = self._build(request)
            self._built[key] = rest
        correlation_id = request[_CORRELATION_FROM:_CORRELATION_END]
        return LENGTH.pack(len(correlation_id) + len(rest)) + correlation_id + rest

    def _build(self, request: bytes) -> bytes:
        _, number, version, _ = REQUEST_HEAD.unpack_from(request)
        api_key = ApiKey(number)
        if api_key is ApiKey.API_VERSIONS:
            version = min(version, VERSIONS[api_key][1])
        body = self._body(api_key, version, request)
        tags = b"\0" if response_header_version(api_key, version) == 1 else b""
        return tags + codec(response_type(api_key), version).encode(body)

    def _body(self, api_key: ApiKey, version: int, request: bytes) -> Message:
        if (made := _THE_SAME.get(api_key)) is not None:
            return made()
        asked = _decode(api_key, version, request)
        if isinstance(asked, MetadataRequest):
            return self._metadata(asked)
        if isinstance(asked, FetchRequest):
            return self._fetched(asked)
        raise ValueError(f"no answer to {api_key.name}")

    def _metadata(self, asked: MetadataRequest) -> MetadataResponse:
        named = [topic.name for topic in asked.topics or [] if topic.name is not None]
        brokers = [
            MetadataResponse.MetadataResponseBroker(node_id=node_id, host=HOST, port=port)
            for node_id, port in enumerate(self._ports)
        ]
        partition = MetadataResponse.MetadataResponsePartition(
            partition_index=0, leader_id=0, leader_epoch=0, replica_nodes=[0], isr_nodes=[0]
        )
        topics = [
            MetadataResponse.MetadataResponseTopic(
                name=name, topic_id=TOPIC_IDS.get(name, UUID(int=0)), partitions=[partition]
            )
            for name in named
        ]
        return MetadataResponse(brokers=brokers, cluster_id="canned", controller_id=0, topics=topics)

    def _fetched(self, asked: FetchRequest) -> FetchResponse:
        """Return a record of partition 0, the only one that the loads fetch."""
        topic_id = asked.topics[0].topic_id
        partition = FetchResponse.PartitionData(
            partition_index=0,
            high_watermark=1,
            last_stable_offset=1,
            log_start_offset=0,
            records=self._records[topic_id],
        )
        topic = FetchResponse.FetchableTopicResponse(topic_id=topic_id, partitions=[partition])
        return FetchResponse(responses=[topic], session_id=0)


def _decode(api_key: ApiKey, version: int, request: bytes) -> Message:
    flexible = request_header_version(api_key, version) == 2
    start = request_body(request, 0, len(request), flexible=flexible)
    return codec(request_type(api_key), version).decode(request, start)


def _produced() -> ProduceResponse:
    partition = ProduceResponse.PartitionProduceResponse(index=0, base_offset=0, log_start_offset=0)
    topic = ProduceResponse.TopicProduceResponse(name=WRITTEN, partition_responses=[partition])
    return ProduceResponse(responses=[topic])


def _api_versions() -> ApiVersionsResponse:
    entry = ApiVersionsResponse.ApiVersion
    return ApiVersionsResponse(
        api_keys=[
            entry(api_key=key, min_version=low, max_version=high) for key, (low, high) in VERSIONS.items()
        ]
    )


def _known() -> SaslHandshakeResponse:
    return SaslHandshakeResponse(mechanisms=["PLAIN"])


_THE_SAME: Final[dict[ApiKey, Callable[[], Message]]] = {
    ApiKey.PRODUCE: _produced,
    ApiKey.SASL_HANDSHAKE: _known,
    ApiKey.API_VERSIONS: _api_versions,
    ApiKey.SASL_AUTHENTICATE: SaslAuthenticateResponse,
}
"""Functions that make the responses which do not depend on the request, by API. Every login succeeds."""


class Conversation:
    """Splits the bytes of one connection into requests, and answers each request."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer = answer
        self._kept = bytearray()
        """The first bytes of the current request, at most WHOLE_BYTES."""
        self._skip = 0
        """Number of bytes of a large request that have not arrived yet, and will be skipped."""

    def receive(self, data: memoryview) -> list[bytes]:
        """Return the response frames to the requests that end within `data`, in order."""
        out: list[bytes] = []
        kept = self._kept
        while data:
            if self._skip:
                skipped = min(self._skip, len(data))
                self._skip -= skipped
                data = data[skipped:]
            else:
                data = self._keep(data)
            if len(kept) >= LENGTH_BYTES and not self._skip and len(kept) == self._wanted():
                out.append(self._answer(bytes(kept)))
                kept.clear()
        return out

    def _keep(self, data: memoryview) -> memoryview:
        """Move the next part of the request from `data` to `_kept`: first the length field, then the bytes
        after it, up to WHOLE_BYTES in all. Return the remaining part of `data`.
        """
        kept = self._kept
        wanted = self._wanted() if len(kept) >= LENGTH_BYTES else LENGTH_BYTES
        missing = wanted - len(kept)
        kept += data[:missing]
        if len(kept) == wanted == WHOLE_BYTES:
            self._skip = LENGTH_BYTES + LENGTH.unpack_from(kept)[0] - WHOLE_BYTES
        return data[missing:]

    def _wanted(self) -> int:
        length: int = LENGTH.unpack_from(self._kept)[0]
        return min(LENGTH_BYTES + length, WHOLE_BYTES)


def command(port: int, *ports: int) -> list[str]:
    """Return the command that starts the stub broker on this port, from any working directory. `ports` are
    those of all brokers of its cluster; none if it is alone.
    """
    return [sys.executable, "-c", _MAIN, str(Path(__file__).parent.parent), *map(str, (port, *ports))]


def serve(port: int, *ports: int) -> None:
    """Answer requests on a port of the loopback interface until the process is killed. Raises OSError."""
    listener = socket.create_server((HOST, port), backlog=1024)
    answers, buffer = Answers(*(ports or (port,))), bytearray(BUFFER_BYTES)
    view, poll = memoryview(buffer), select.epoll()
    poll.register(listener, select.EPOLLIN)
    talking: dict[int, tuple[socket.socket, Conversation]] = {}
    while True:
        for fd, _events in poll.poll():
            if fd == listener.fileno():
                connection, _address = listener.accept()
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                talking[connection.fileno()] = connection, Conversation(answers.frame)
                poll.register(connection, select.EPOLLIN)
            elif not _talk(*talking[fd], view):
                talking.pop(fd)[0].close()


def _talk(connection: socket.socket, conversation: Conversation, view: memoryview) -> bool:
    """Read once from the connection, and send the responses. Return False if the connection has ended or
    failed.
    """
    try:
        count = connection.recv_into(view)
        if answers := conversation.receive(view[:count]):
            connection.sendall(b"".join(answers))
    except OSError:
        return False
    return count > 0


def main() -> None:
    """Run the stub broker on the first port that the command line names; see `command`."""
    serve(*map(int, sys.argv[1:]))


if __name__ == "__main__":
    main()
