"""The few requests by which a broker is asked whether it is ready. Built with struct alone, so that tests of
Weir's codec and its brokers do not rest on that codec."""

from __future__ import annotations

import socket
import struct

_METADATA, _API_VERSIONS = 3, 18


def exchange(host: str, port: int, api_key: int, version: int, body: bytes, timeout_s: float = 5.0) -> bytes:
    """Send one request (header version 1) and return the response's body. Raises OSError, EOFError."""
    client_id = b"weir-tests"
    head = struct.pack(">hhih", api_key, version, 7, len(client_id)) + client_id
    with socket.create_connection((host, port), timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        (size,) = struct.unpack(">i", _receive(connection, 4))
        return _receive(connection, size)[4:]


def _receive(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise EOFError("the broker closed the connection")
        parts += part
    return bytes(parts)


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
    body = exchange(host, port, _METADATA, 1, struct.pack(">i", 0))
    (count,), at = struct.unpack_from(">i", body), 4
    ids = set()
    for _ in range(count):
        node_id, host_size = struct.unpack_from(">ih", body, at)
        ids.add(node_id)
        at += 6 + host_size + 4
        (rack_size,) = struct.unpack_from(">h", body, at)
        at += 2 + max(rack_size, 0)
    (controller,) = struct.unpack_from(">i", body, at)
    return ids if controller >= 0 else set()
