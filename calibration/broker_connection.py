"""A connection for requests to the calibrated broker that are not measured; it reconnects after a failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import trio

from weir.calibration.load import Frames
from weir.protocol.errors import ProtocolError
from weir.protocol.values import Message
from weir.proxy.control.cluster.connection import QuestionError, failures

if TYPE_CHECKING:
    from weir.calibration.frames import Request
    from weir.proxy.addresses import Address
    from weir.proxy.control.cluster.connection import OwnConnection

M = TypeVar("M", bound=Message)

ASIDE: Final = "weir"
"""Client-id of requests that are not measured."""


class BrokerAccess(Protocol):
    """The part of `proxy.control.cluster.access.Access` that calibration uses: `connect` opens a connection
    and logs in.
    """

    async def connect(self, address: Address, timeout_s: float) -> OwnConnection: ...


class CalibrationError(Exception):
    """Raised if the broker cannot be calibrated; the message is one line with the reason."""


class BrokerConnection:
    """Sends requests to one broker, on a connection that the first request opens. The owner calls `aclose` at
    the end.
    """

    def __init__(self, access: BrokerAccess, address: Address, timeout_s: float) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self._access = access
        self._connection: OwnConnection | None = None

    async def connect(self) -> OwnConnection:
        """Open a separate connection to the broker and log in; the caller closes it. Raises QuestionError."""
        return await self._access.connect(self.address, self.timeout_s)

    async def ask(self, request: Request, answer: type[M], client_id: str = ASIDE) -> M:
        """Send `request` and return its response, of type `answer`. If a connection that was used before
        fails, send the request once more on a new connection; so it may arrive twice. Raises QuestionError.
        """
        if self._connection is not None:
            try:
                return await self._ask(self._connection, request, answer, client_id)
            except QuestionError:
                await self.aclose()
        self._connection = await self.connect()
        return await self._ask(self._connection, request, answer, client_id)

    async def _ask(self, connection: OwnConnection, request: Request, answer: type[M], client_id: str) -> M:
        try:
            with failures(self.address, self.timeout_s):
                return await exchange(connection.stream, request, answer, self.timeout_s, client_id)
        except BaseException:
            await self.aclose()  # otherwise `ask` could take a late response for the next request's
            raise

    async def aclose(self) -> None:
        """Close the connection if it is open; the next `ask` opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()


async def exchange(
    stream: trio.abc.Stream, request: Request, answer: type[M], timeout_s: float, client_id: str = ASIDE
) -> M:
    """Send a request and return its response, of type `answer`.

    Call this within `proxy.control.cluster.connection.failures`, which turns all its exceptions into
    QuestionError: TooSlowError, OSError, trio.BrokenResourceError, ProtocolError.
    """
    with trio.fail_after(timeout_s):
        await stream.send_all(request.frame(client_id))
        frame = await Frames(stream).next()
    found = request.answer(frame)
    if not isinstance(found, answer):
        raise ProtocolError(f"no {answer.__name__}")
    return found
