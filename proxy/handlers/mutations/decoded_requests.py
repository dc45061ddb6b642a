"""Requests decoded as a whole, because a mutation quota charges them by their topics.

A request whose body no broker can read is forwarded unread: the broker will close the connection. Every
request that a broker can read must be read here (`Codec.decode_request`), or clients could bypass an enforced
quota. So Weir closes the connection if it cannot read a request's header, could not encode the request again,
or if the request has too many elements. A shadow quota alone closes no connection: a request that cannot be
read is forwarded without a charge.
"""
# mypyc: skip, because these requests are rare, so compiling would only make the build longer.

from __future__ import annotations

from typing import Final, Generic, TypeVar

from weir.protocol.codec import codec
from weir.protocol.errors import ProtocolError
from weir.protocol.framing import INCOMPLETE, LENGTH, request_body
from weir.protocol.messages import Message
from weir.proxy.handlers.decisions import WAIT, Decision, Query, Wait
from weir.proxy.handlers.plan import Admit, Context, Plan, forward_unchanged
from weir.proxy.handlers.unread import passed_unread
from weir.proxy.handlers.whole_requests import readable_request

COUNTED_BYTES_MAX: Final = 1024 * 1024
"""Maximum length (bytes) of a request that Weir keeps until it is complete, to charge it; a longer request is
refused (`ConnectionLimits.held_bytes_max`).
"""
R = TypeVar("R", bound=Message)


class ChargedRequests(Generic[R]):
    """Decodes the requests of one plan that are charged by their topics."""

    def __init__(self, plan: Plan, request: type[R]) -> None:
        self._codec = codec(request, plan.version)
        self._flexible = plan.flexible_request
        self.pass_on: Admit = plan.admit or forward_unchanged
        """Decides about requests that are not charged: the plan's `admit` before this handler."""

    def read(
        self, context: Context, data: bytearray, frame: int, end: int, complete: bool, *, enforced: bool
    ) -> R | Decision | Wait:
        """Return the decoded request `data[frame:end]`, or a decision: WAIT until the request is complete, a
        query that decodes it if it is large (`whole_request`), and that of `pass_on`, if it cannot be read.
        `enforced` is True if the request must not be forwarded unread.

        Raises ProtocolError if the request cannot be charged, so that the connection closes.
        """
        request = self._read(context, data, frame, end, complete, enforced)
        return (
            passed_unread(self.pass_on(context, data, frame, end, complete)) if request is None else request
        )

    def _read(
        self, context: Context, data: bytearray, frame: int, end: int, complete: bool, enforced: bool
    ) -> R | Query | Wait | None:
        if not enforced and LENGTH.unpack_from(data, frame)[0] > COUNTED_BYTES_MAX:
            return None
        if not complete:
            return WAIT
        try:
            body = request_body(data, frame, end, flexible=self._flexible)
            if body == INCOMPLETE:
                return WAIT
            return readable_request(context, self._codec, data, body, end)
        except ProtocolError:
            if enforced:
                raise
            return None
