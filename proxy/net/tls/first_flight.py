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
"""The first byte of a TLS client."""
HEAD_BYTES: Final = 5
"""Size of a record's header: type, version, length."""
RECORD_BYTES_MAX: Final = HEAD_BYTES + 16 * 1024
"""Size of the largest record of a handshake; OpenSSL refuses a longer one."""


async def arrive(sock: socket.socket) -> bytes:
    """Wait for the client's first record, without consuming it. Return the bytes that have arrived: fewer
    than the record if the client has closed, or speaks no TLS; nothing at the end. Raises OSError.
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
    """Return the bytes that have arrived, without consuming them: nothing at the end, None if more may come.
    Raises OSError.
    """
    try:
        return sock.recv(RECORD_BYTES_MAX, socket.MSG_PEEK)
    except BlockingIOError:
        return None


def needed_bytes(head: bytes) -> int:
    """Return the number of bytes to wait for in all; 0 if a decision is possible now."""
    if head[:1] and head[0] != HANDSHAKE_RECORD:
        return 0
    if len(head) < HEAD_BYTES:
        return HEAD_BYTES
    length = HEAD_BYTES + int.from_bytes(head[3:HEAD_BYTES], "big")
    return length if len(head) < length <= RECORD_BYTES_MAX else 0
