"""Whole requests, for those who pay for what is in them.

A request whose body no broker can read passes unread: the broker will close the connection. Every request
that a broker can read is read here (`Codec.decode_request`), or clients could get around an enforced quota.
So Weir closes the connection if it cannot read a request's head, or could not write the request anew. A
shadow quota alone closes no connection: a request that cannot be read is not counted.
"""

from __future__ import annotations

from typing import Final, TypeVar

from protocol.codec import Codec
from protocol.errors import ProtocolError, UnencodableError
from protocol.framing import INCOMPLETE, LENGTH, request_body
from protocol.messages import Message
from proxy.handlers.decisions import WAIT, Wait
from quotas import MutationLedger

COUNTED_BYTES_MAX: Final = 1024 * 1024
"""A longer request is not kept until it is whole, but refused (`ConnectionLimits.held_bytes_max`)."""
R = TypeVar("R", bound=Message)


def request_paid_for(
    ledger: MutationLedger,
    codec_: Codec[R],
    data: bytearray,
    frame: int,
    end: int,
    complete: bool,
    *,
    flexible: bool,
) -> R | Wait | None:
    """Decode the request `data[frame:end]`; WAIT if it is not here as a whole, None if it passes unread.

    `flexible` is whether its header has tagged fields. Raises ProtocolError.
    """
    enforced = ledger.enforced is not None
    if not enforced and LENGTH.unpack_from(data, frame)[0] > COUNTED_BYTES_MAX:
        return None
    if not complete:
        return WAIT
    try:
        body = request_body(data, frame, end, flexible=flexible)
    except ProtocolError:
        if enforced:
            raise
        return None
    if body == INCOMPLETE:
        return WAIT
    try:
        return codec_.decode_request(data, body, end)
    except UnencodableError:
        if enforced:
            raise
        return None
    except ProtocolError:
        return None
