"""The few requests by which a broker is asked whether it is ready. Built with struct alone, so that tests of
Weir's codec and its brokers do not rest on that codec."""

from __future__ import annotations

import socket
import struct

from tests.wire.connection import receive_frame

_METADATA, _FIND_COORDINATOR, _API_VERSIONS, _DESCRIBE_QUORUM = 3, 10, 18, 55


def exchange(host: str, port: int, api_key: int, version: int, body: bytes, timeout_s: float = 5.0) -> bytes:
    """Send one request (header version 1) and return the response's body. Raises OSError, EOFError."""
    client_id = b"weir-tests"
    head = struct.pack(">hhih", api_key, version, 7, len(client_id)) + client_id
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        return receive_frame(connection)[8:]


def api_versions(host: str, port: int) -> dict[int, tuple[int, int]]:
    """What ApiVersions v0 answers: API key to lowest and highest version. Raises OSError, EOFError,
    ValueError."""
    body = exchange(host, port, _API_VERSIONS, 0, b"")
    error, count = struct.unpack_from(">hi", body)
    if error:
        raise ValueError(f"ApiVersions v0 answered error {error}")
    return {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", body[6 : 6 + 6 * count])}


def known_brokers(host: str, port: int) -> set[int]:
    """Node ids that Metadata v1 lists; none while there is no controller. Raises OSError, EOFError,
    struct.error."""
    brokers, controller = metadata(host, port)
    return set(brokers) if controller >= 0 else set()


def metadata(host: str, port: int) -> tuple[dict[int, tuple[str, int]], int]:
    """What Metadata v1 tells: each broker's host and port by node id, and the controller's node id.

    In KRaft mode any broker may be named as the controller. Raises OSError, EOFError, struct.error.
    """
    body = exchange(host, port, _METADATA, 1, struct.pack(">i", 0))
    (count,), at = struct.unpack_from(">i", body), 4
    brokers = {}
    for _ in range(count):
        node_id, host_size = struct.unpack_from(">ih", body, at)
        at += 6 + host_size
        broker_port, rack_size = struct.unpack_from(">ih", body, at)
        brokers[node_id] = (body[at - host_size : at].decode(), broker_port)
        at += 6 + max(rack_size, 0)
    (controller,) = struct.unpack_from(">i", body, at)
    return brokers, controller


def coordinator(host: str, port: int, group: str) -> int | None:
    """The node id that FindCoordinator v0 names for a group, None while it names none. Raises OSError,
    EOFError, struct.error."""
    name = group.encode()
    body = exchange(host, port, _FIND_COORDINATOR, 0, struct.pack(">h", len(name)) + name)
    error, node_id = struct.unpack_from(">hi", body)
    return None if error else int(node_id)


def quorum_leader(host: str, port: int) -> int | None:
    """The node id of the active KRaft controller, None while there is none: DescribeQuorum v0, whose strings
    and arrays are compact (their length plus one, in one byte here). Raises OSError, EOFError, struct.error.
    """
    topic = b"__cluster_metadata"
    compact = bytes([1 + len(topic)]) + topic
    no_tags, one = b"\0", b"\2"
    asked = no_tags + one + compact + one + struct.pack(">i", 0) + 3 * no_tags
    body = exchange(host, port, _DESCRIBE_QUORUM, 0, asked)
    (error,) = struct.unpack_from(">h", body, 1)
    if error:
        return None
    _partition, error, leader = struct.unpack_from(">ihi", body, 1 + 2 + 1 + len(compact) + 1)
    return None if error or leader < 0 else int(leader)
