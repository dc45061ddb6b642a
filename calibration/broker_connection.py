"""Asking the broker that is measured, on a connection that is made anew when it is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import trio

from calibration.load import Frames
from protocol.errors import ProtocolError
from protocol.values import Message
from proxy.control.cluster.connection import QuestionError, failures

if TYPE_CHECKING:
    from calibration.frames import Request
    from proxy.addresses import Address
    from proxy.control.cluster.connection import Connection

M = TypeVar("M", bound=Message)

ASIDE: Final = "weir"
"""The client-id of what is not measured."""


class BrokerAccess(Protocol):
    """How brokers are reached: `proxy.control.cluster.access.Access`."""

    async def connect(self, address: Address, timeout_s: float) -> Connection: ...


class CalibrationError(Exception):
    """Calibrating is not possible, and why: one line."""


class BrokerConnection:
    """One broker; ends with `aclose`."""

    def __init__(self, access: BrokerAccess, address: Address, timeout_s: float) -> None:
        self.address = address
        self.timeout_s = timeout_s
        self._access = access
        self._connection: Connection | None = None

    async def connect(self) -> Connection:
        """A connection of one's own, logged in. Raises QuestionError."""
        return await self._access.connect(self.address, self.timeout_s)

    async def ask(self, request: Request, answer: type[M], client_id: str = ASIDE) -> M:
        """Ask; once more, on another connection, if that fails on one that stood for a while. Raises
        QuestionError.
        """
        if self._connection is not None:
            try:
                return await self._ask(self._connection, request, answer, client_id)
            except QuestionError:
                await self.aclose()
        self._connection = await self.connect()
        return await self._ask(self._connection, request, answer, client_id)

    async def _ask(self, connection: Connection, request: Request, answer: type[M], client_id: str) -> M:
        try:
            with failures(self.address, self.timeout_s):
                return await exchange(connection.stream, request, answer, self.timeout_s, client_id)
        except BaseException:
            await self.aclose()  # an answer may still be on its way
            raise

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()


async def exchange(
    stream: trio.abc.Stream, request: Request, answer: type[M], timeout_s: float, client_id: str = ASIDE
) -> M:
    """Send a request, return its response. Raises what `proxy.control.cluster.connection.failures` knows."""
    with trio.fail_after(timeout_s):
        await stream.send_all(request.frame(client_id))
        frame = await Frames(stream).next()
    found = request.answer(frame)
    if not isinstance(found, answer):
        raise ProtocolError(f"no {answer.__name__}")
    return found
