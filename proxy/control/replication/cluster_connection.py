"""One connection to any broker of the cluster, kept for the next question."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

import trio

from weir.protocol.api import versions
from weir.protocol.errors import ProtocolError
from weir.protocol.messages import ApiVersionsRequest, ApiVersionsResponse
from weir.protocol.values import Message
from weir.protocol.versions import NONE, VersionRange
from weir.proxy.addresses import Address
from weir.proxy.control.cluster.access import Access
from weir.proxy.control.cluster.connection import BrokerClosedError, OwnConnection, QuestionError, decode
from weir.proxy.control.cluster.discovery import API_VERSIONS_VERSION
from weir.proxy.handlers.api_versions.api_versions import ranges

T = TypeVar("T")
M = TypeVar("M", bound=Message)

REASONS_MAX: Final = 3
"""Maximum number of brokers whose errors an error text contains."""


class QueriedBroker(NamedTuple):
    """A connection to a broker, and the broker's version ranges by API key."""

    connection: OwnConnection
    ranges: Mapping[int, VersionRange]

    def version(self, api_key: int, wanted: VersionRange) -> int | None:
        """Return the highest of the `wanted` versions that the broker and Weir know; None if there is no such
        version.
        """
        both = self.ranges.get(api_key, NONE).intersect(wanted).intersect(versions(api_key) or NONE)
        return both.max if both else None

    async def ask(self, request: Message, answer: type[M], version: int) -> M:
        """Send the request, and decode the response in a thread: it may be long. Raises QuestionError."""
        frame = await self.connection.ask_raw(request, version)
        try:
            return await trio.to_thread.run_sync(decode, frame, answer, version)
        except ProtocolError as error:
            text = f"{self.connection.address}: {error}"
            raise QuestionError(text, reachable=True, foreign=True) from None


async def meet(access: Access, address: Address, timeout_s: float) -> QueriedBroker:
    """Connect to a broker and ask for its versions. Raises QuestionError."""
    connection = await access.connect(address, timeout_s)
    try:
        answer = await connection.ask(ApiVersionsRequest(), ApiVersionsResponse, API_VERSIONS_VERSION)
    except BaseException:
        await connection.aclose()
        raise
    return QueriedBroker(connection, ranges(answer))


class ClusterConnection:
    """A connection to a broker that answers: of the known brokers, the one whose last failure is the oldest.
    It is opened at the first question, and again after a failure.
    """

    def __init__(self, brokers: Callable[[], Iterable[Address]], access: Access, timeout_s: float) -> None:
        """Begin without a connection. `brokers` returns the addresses to try; connecting and each response
        may take `timeout_s`.
        """
        self._brokers = brokers
        self._access = access
        self._timeout_s = timeout_s
        self._open: QueriedBroker | None = None
        self._failures: dict[Address, float] = {}
        """Time (s) of each broker's last failure, for those that have failed."""

    async def ask(self, work: Callable[[QueriedBroker], Awaitable[T]], within_s: float = math.inf) -> T:
        """Await `work` with the open connection, or with a new one if there is no connection or the broker
        has closed it: brokers close connections that are idle, or whose login has expired. Raises
        QuestionError, at the latest after `within_s`.
        """
        try:
            with trio.fail_after(within_s):
                return await self._ask(work)
        except trio.TooSlowError:
            raise QuestionError(f"no answer within {within_s:g} s", reachable=True, foreign=False) from None

    async def _ask(self, work: Callable[[QueriedBroker], Awaitable[T]]) -> T:
        if self._open is not None:
            try:
                return await self._work(self._open, work)
            except BrokerClosedError:
                pass
        self._open = await self._connect()
        return await self._work(self._open, work)

    async def _work(self, broker: QueriedBroker, work: Callable[[QueriedBroker], Awaitable[T]]) -> T:
        try:
            return await work(broker)
        except BaseException:
            self._note_failure(broker.connection.address)
            await self.aclose()  # a response may still arrive on it
            raise

    async def _connect(self) -> QueriedBroker:
        """Connect to the first broker that answers. Raises QuestionError."""
        failures: list[QuestionError] = []
        for address in sorted(self._brokers(), key=lambda one: self._failures.get(one, -math.inf)):
            try:
                return await meet(self._access, address, self._timeout_s)
            except BaseException as error:
                self._note_failure(address)
                if not isinstance(error, QuestionError):
                    raise
                failures.append(error)
        text = "; ".join(map(str, failures[:REASONS_MAX])) or "no broker is known"
        raise QuestionError(text, reachable=False, foreign=False)

    def _note_failure(self, address: Address) -> None:
        self._failures[address] = trio.current_time()

    async def aclose(self) -> None:
        """Close the connection, if there is one."""
        broker, self._open = self._open, None
        if broker is not None:
            await broker.connection.aclose()
