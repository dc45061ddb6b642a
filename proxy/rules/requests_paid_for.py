"""Whole requests, for those who pay for what is in them.

An enforced quota must see a request, or it may not pass. A shadow quota alone closes no connection: what it
cannot read, it does not count.
"""

from __future__ import annotations

from typing import Final, TypeVar

from protocol.codec import Codec
from protocol.errors import ProtocolError
from protocol.heads import LENGTH
from protocol.messages import Message
from proxy.rules.errand import whole_request
from proxy.rules.plan import WAIT, Wait
from quotas import MutationPayers

COUNTED_BYTES_MAX: Final = 1024 * 1024
"""A longer request is not kept until it is whole, but refused (`SessionLimits.held_bytes_max`)."""
R = TypeVar("R", bound=Message)


def request_paid_for(
    payers: MutationPayers,
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
    if payers.enforced is None and LENGTH.unpack_from(data, frame)[0] > COUNTED_BYTES_MAX:
        return None
    try:
        request = whole_request(codec_, data, frame, end, complete, flexible=flexible)
    except ProtocolError:
        if payers.enforced is None:
            return None
        raise
    return WAIT if request is None else request
