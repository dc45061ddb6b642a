"""Requests decoded as a whole, because a mutation quota charges them by their topics.

A request whose body no broker can read is forwarded unread: the broker will close the connection. Every
request that a broker can read must be read here (`Codec.decode_request`), or clients could bypass an enforced
quota. So Weir closes the connection if it cannot read a request's header, could not encode the request again,
or if the request has too many elements. A shadow quota alone closes no connection: a request that cannot be
read is forwarded without a charge.
"""
# mypyc: skip, because these requests are rare, so compiling would only make the build longer.

from __future__ import annotations

from typing import Final, TypeVar

from weir.protocol.codec import Codec
from weir.protocol.errors import ProtocolError, UnencodableError
from weir.protocol.framing import INCOMPLETE, LENGTH, request_body
from weir.protocol.messages import Message
from weir.proxy.handlers.decisions import WAIT, Query, Wait
from weir.proxy.handlers.plan import Context
from weir.proxy.handlers.whole_requests import readable_request

COUNTED_BYTES_MAX: Final = 1024 * 1024
"""Maximum length (bytes) of a request that Weir keeps until it is complete, to charge it; a longer request is
refused (`ConnectionLimits.held_bytes_max`).
"""
R = TypeVar("R", bound=Message)


def charged_request(
    context: Context,
    codec_: Codec[R],
    data: bytearray,
    frame: int,
    end: int,
    complete: bool,
    *,
    flexible: bool,
    enforced: bool,
) -> R | Query | Wait | None:
    """Return the decoded request `data[frame:end]`. Return WAIT until the request is complete, a query that
    decodes it if it is large (`whole_request`), None if it cannot be read and is to be forwarded. `flexible`
    is True if the header has tagged fields; `enforced`, if the request must not be forwarded unread.

    Raises ProtocolError if the request cannot be charged, so that the connection closes.
    """
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
        return readable_request(context, codec_, data, body, end)
    except UnencodableError:
        if enforced:
            raise
        return None
