"""A small server that speaks some of Kafka's APIs, and whose answers a test can replace."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from typing import TYPE_CHECKING, Final, Self

from weir.protocol.api import ApiKey, is_flexible, request_header_version, response_header_version
from weir.protocol.codec import codec, request_type, response_type
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import LENGTH
from weir.protocol.messages import (
    ApiVersionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    MetadataResponse,
    RequestHeader,
    ResponseHeader,
)
from weir.protocol.versions import VersionRange

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable

    from weir.protocol.values import Message

OFFERED: Final[dict[int, VersionRange]] = {
    ApiKey.METADATA: VersionRange(0, 9),
    ApiKey.API_VERSIONS: VersionRange(0, 3),
    ApiKey.CREATE_TOPICS: VersionRange(0, 5),
    ApiKey.DELETE_TOPICS: VersionRange(0, 4),
}


class StubTarget:
    """The server, on a free port of this machine, in a `with` block."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.offered = dict(OFFERED)
        self.topics: list[str] = []
        """Names of the topics that exist."""
        self.seen: list[tuple[int, int, Message]] = []
        """API key, version and request, of all requests."""
        self.answers: dict[int, Callable[[Message, int], Message | bytes | None]] = {
            ApiKey.API_VERSIONS: self._versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.CREATE_TOPICS: self._create,
            ApiKey.DELETE_TOPICS: self._delete,
        }
        self._stopped = threading.Event()
        target = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                # It closes the connection at malformed bytes, and at APIs that it lacks.
                with contextlib.suppress(OSError, EOFError, ProtocolError, ValueError, KeyError):
                    connection = self.request if tls is None else tls.wrap_socket(self.request, True)
                    with connection:
                        while target.answer(connection):
                            pass

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def stop(self) -> None:
        """Refuse connections from now on."""
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def wait_for_stop(self) -> None:
        """Answer nothing before the stub stops."""
        self._stopped.wait()

    def answer(self, connection: socket.socket) -> bool:
        """Answer one request. Return False to close the connection."""
        data = _receive(connection, LENGTH.unpack(_receive(connection, 4))[0])
        api_key, version = int.from_bytes(data[:2]), int.from_bytes(data[2:4])
        request, correlation_id = _decoded(data, api_key, version)
        self.seen.append((api_key, version, request))
        response = self.answers[api_key](request, version)
        if response is None:
            return False
        head = codec(ResponseHeader, response_header_version(api_key, version)).encode(
            ResponseHeader(correlation_id=correlation_id)
        )
        body = (
            response
            if isinstance(response, bytes)
            else codec(response_type(api_key), version).encode(response)
        )
        connection.sendall(LENGTH.pack(len(head + body)) + head + body)
        return True

    def _versions(self, _request: Message, _version: int) -> Message:
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponse.ApiVersion(api_key=key, min_version=found.min, max_version=found.max)
                for key, found in self.offered.items()
            ]
        )

    def _metadata(self, _request: Message, version: int) -> Message:
        partition = MetadataResponse.MetadataResponsePartition(leader_id=1)
        return MetadataResponse(
            brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)],
            cluster_id="stub" if version >= 2 else None,
            topics=[
                MetadataResponse.MetadataResponseTopic(name=name, partitions=[partition])
                for name in self.topics
            ],
        )

    def _create(self, request: Message, _version: int) -> Message:
        assert isinstance(request, CreateTopicsRequest)
        if not request.validate_only:
            self.topics += [topic.name for topic in request.topics if topic.name not in self.topics]
        results = [CreateTopicsResponse.CreatableTopicResult(name=topic.name) for topic in request.topics]
        return CreateTopicsResponse(topics=results)

    def _delete(self, request: Message, _version: int) -> Message:
        assert isinstance(request, DeleteTopicsRequest)
        self.topics = [name for name in self.topics if name not in request.topic_names]
        results = [DeleteTopicsResponse.DeletableTopicResult(name=name) for name in request.topic_names]
        return DeleteTopicsResponse(responses=results)


def _decoded(data: bytes, api_key: int, version: int) -> tuple[Message, int]:
    """Return the request and its correlation id. The header is encoded again to learn its size."""
    length = int.from_bytes(data[8:10], signed=True)
    header = codec(RequestHeader, request_header_version(api_key, version))
    end = 10 + max(length, 0) + is_flexible(api_key, version)
    head = header.decode(data, 0, end)
    return codec(request_type(api_key), version).decode(data, end), head.correlation_id


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
