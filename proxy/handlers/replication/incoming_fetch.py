"""A complete replica fetch in the client's buffer, and the frames that replace it or answer it."""

from __future__ import annotations

from typing import NamedTuple

from weir.protocol.api import ApiKey
from weir.protocol.codec import codec
from weir.protocol.framing import LENGTH, LENGTH_BYTES, REQUEST_HEAD
from weir.protocol.messages import FetchRequest, FetchResponse
from weir.proxy.handlers.broker_query import response_frame
from weir.proxy.handlers.decisions import Forward, Reply
from weir.proxy.handlers.plan import ByteCounter


class IncomingFetch(NamedTuple):
    """The fetch `data[frame:end]` of this version, whose body begins at `body`."""

    data: bytearray
    frame: int
    body: int
    end: int
    version: int

    def forward(self, changed: FetchRequest | None, counter: ByteCounter | None = None) -> Forward:
        """Return the decision to forward the fetch, or `changed` instead of it. `counter` reads the
        response.
        """
        frame = None
        if changed is not None:
            rest = bytes(self.data[self.frame + LENGTH_BYTES : self.body])
            rest += codec(FetchRequest, self.version).encode(changed)
            frame = LENGTH.pack(len(rest)) + rest
        return Forward(exempt=True, serial=True, frame=frame, response_counter=counter)

    def reply(self, response: FetchResponse) -> Reply:
        """Return the decision to answer the fetch with this response."""
        *_rest, correlation_id = REQUEST_HEAD.unpack_from(self.data, self.frame)
        return Reply(response_frame(ApiKey.FETCH, self.version, correlation_id, response))
