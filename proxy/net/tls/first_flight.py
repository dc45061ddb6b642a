"""The first TLS record of a client, awaited in the kernel: until it is complete, a client costs no memory of
the TLS library, and no thread.

Linux reports a socket as readable when SO_RCVLOWAT bytes have arrived, or its peer has closed. So a client
that sends its first flight byte by byte wakes no task.
"""

from __future__ import annotations

import socket
from typing import Final

import trio

HANDSHAKE_RECORD: Final = 0x16
"""Type of a TLS record that belongs to a handshake. It is the first byte that a TLS client sends."""
HEAD_BYTES: Final = 5
"""Size (bytes) of a TLS record's header: type, version, length."""
RECORD_BYTES_MAX: Final = HEAD_BYTES + 16 * 1024
"""Maximum size (bytes) of a TLS record of a handshake. OpenSSL refuses a longer record."""


async def arrive(sock: socket.socket) -> bytes:
    """Wait until the client's first TLS record is complete, without consuming its bytes. Return the bytes
    that have arrived: fewer than the record if the client has closed, or speaks no TLS; b"" if the client has
    closed without sending. Raises OSError.
    """
    awaited = 0
    try:
        while True:
            head = peek(sock)
            needed = HEAD_BYTES if head is None else needed_bytes(head)
            if head is not None and (not head or not needed or needed == awaited):
                return head
            awaited = needed
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, awaited)
            await trio.lowlevel.wait_readable(sock)
    finally:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)


def peek(sock: socket.socket) -> bytes | None:
    """Return the bytes that have arrived, without consuming them; b"" if the client has closed without
    sending, None if no byte has arrived yet. Raises OSError.
    """
    try:
        return sock.recv(RECORD_BYTES_MAX, socket.MSG_PEEK)
    except BlockingIOError:
        return None


def needed_bytes(head: bytes) -> int:
    """Return the number of bytes, from the beginning of the connection, for which to wait. Return 0 if no
    wait is needed: the record is complete, too long, or no TLS.
    """
    if head[:1] and head[0] != HANDSHAKE_RECORD:
        return 0
    if len(head) < HEAD_BYTES:
        return HEAD_BYTES
    length = HEAD_BYTES + int.from_bytes(head[3:HEAD_BYTES], "big")
    return length if len(head) < length <= RECORD_BYTES_MAX else 0
