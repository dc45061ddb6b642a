"""Quotas stored by the brokers (KIP-546, Kafka 2.6 and later), mirrored and enforced by Weir.

Weir keeps one connection and asks every second; it compares answers as bytes and decodes only changed ones.
Quotas that Weir does not support are skipped, and logged once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
import trio

from protocol.api import ApiKey
from protocol.error_codes import ErrorCode
from protocol.errors import ProtocolError
from protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClientQuotasResponse,
    MetadataRequest,
    MetadataResponse,
)
from proxy.addresses import Address
from proxy.control.cluster.access import Access
from proxy.control.cluster.connection import ClosedError, Connection, QuestionError, decode
from proxy.control.cluster.discovery import METADATA_VERSION
from proxy.control.stores.store import Changed, StoreError, UnfitError
from proxy.control.stores.wire_quotas import EVERYTHING, VERSION, as_request, imported
from proxy.handlers.api_versions.api_versions import ranges
from proxy.handlers.quota_api.quota_admin import Changes
from quotas import QuotaTable
from quotas.table.imported import Skipped

if TYPE_CHECKING:
    from proxy.config.config import Config

T = TypeVar("T")

log = structlog.get_logger("weir.quotas")

ASK_EVERY_S: Final = 1.0
SHARE: Final = 20
"""The pause between two requests, as a multiple of the time that the last one took: large answers are
requested less often.
"""
LOAD_S: Final = 30.0
SETTLE_STEPS: Final = 50
"""Number of times to ask whether an alteration has reached the broker that is asked."""
SETTLE_STEP_S: Final = 0.1
STORED_AT: Final = 8
"""Offset behind correlation id and throttle_time_ms, which are not part of the stored quotas."""
SAID_MAX: Final = 1000
SAID_CHARS_MAX: Final = 200
REASONS_MAX: Final = 3
BROKERS_MAX: Final = 100


class BrokerStore:
    """See `store.QuotaStore`. `follow` may run once; without it each call opens a connection."""

    name = "broker"

    def __init__(self, brokers: Sequence[Address], access: Access, timeout_s: float) -> None:
        """Ask `brokers` in turn until one answers, then also those that it lists."""
        self._brokers = list(brokers)
        self._access = access
        self._timeout_s = timeout_s
        self._connection: Connection | None = None
        self._turn = trio.Lock()
        self._followed = False
        self._known: tuple[bytes, QuotaTable] | None = None
        """The last answer, and its quotas."""
        self._said: set[Skipped] = set()

    async def load(self) -> QuotaTable:
        """Ask for the quotas. Raises StoreError; UnfitError if the brokers lack the API, or do not authorize
        Weir.
        """
        try:
            with trio.fail_after(LOAD_S):
                return await self._in_turn(self._ask)
        except trio.TooSlowError:
            raise StoreError(f"no broker has told its quotas within {LOAD_S:g} s") from None

    async def follow(self, changed: Changed, failed: Callable[[StoreError], None]) -> None:
        """Ask the brokers for their quotas, about once a second, until cancelled."""
        self._followed = True
        told: QuotaTable | None = None
        try:
            while True:
                began_s = trio.current_time()
                try:
                    table = await self.load()
                except StoreError as error:
                    told = None
                    failed(error)
                else:
                    if table is not told:
                        told = table
                        await changed(table)
                await trio.sleep(max(ASK_EVERY_S, SHARE * (trio.current_time() - began_s)))
        finally:
            self._followed = False
            await self._close()

    async def alter(self, changes: Changes) -> QuotaTable:
        """Have a broker store the changes; return once it shows them. Raises StoreError."""
        request = as_request(changes)
        return await self._in_turn(partial(self._alter, request, changes))

    async def _in_turn(self, work: Callable[[], Awaitable[QuotaTable]]) -> QuotaTable:
        async with self._turn:
            try:
                return await work()
            finally:
                if not self._followed:
                    await self._close()

    async def _ask(self) -> QuotaTable:
        """Raises StoreError."""
        frame = await self._answer(lambda connection: connection.ask_raw(EVERYTHING, VERSION))
        stored = frame[STORED_AT:]
        if self._known is None or self._known[0] != stored:
            table, skipped = await trio.to_thread.run_sync(_read, frame)
            self._known = stored, table
            self._say(skipped)
        return self._known[1]

    async def _alter(self, request: AlterClientQuotasRequest, changes: Changes) -> QuotaTable:
        """Raises StoreError."""
        answer = await self._answer(
            lambda connection: connection.ask(request, AlterClientQuotasResponse, VERSION)
        )
        for entry in answer.entries:
            if entry.error_code != ErrorCode.NONE:
                raise StoreError(f"the brokers refuse it: {_said(entry.error_code, entry.error_message)}")
        for _step in range(SETTLE_STEPS):
            table = await self._ask()
            if _shows(table, changes):
                return table
            await trio.sleep(SETTLE_STEP_S)
        raise StoreError(
            f"the brokers have taken it, but do not show it after {SETTLE_STEPS * SETTLE_STEP_S:g} s"
        )

    def _say(self, skipped: Sequence[Skipped]) -> None:
        """Log skipped quotas, each once."""
        new = [skip for skip in skipped if skip not in self._said]
        if new and len(self._said) < SAID_MAX:
            self._said.update(new[:SAID_MAX])
            log.warning("brokers' quotas not enforced", count=len(new), first=str(new[0]))

    # Connections

    async def _answer(self, ask: Callable[[Connection], Awaitable[T]]) -> T:
        """Ask on the open connection, or on a new one: brokers close idle connections, and old logins. Raises
        StoreError.
        """
        try:
            if self._connection is not None:
                try:
                    return await ask(self._connection)
                except ClosedError:
                    await self._close()
            self._connection = await self._connect()
            return await ask(self._connection)
        except QuestionError as error:
            await self._close()
            raise StoreError(str(error)) from None
        except BaseException:
            await self._close()  # a response may still arrive on it
            raise

    async def _connect(self) -> Connection:
        """Raises StoreError."""
        failures: list[str] = []
        unfit = 0
        for address in list(self._brokers):
            try:
                return await self._connect_to(address)
            except QuestionError as error:
                failures.append(str(error))
            except UnfitError as error:
                unfit += 1
                failures.append(str(error))
        kind = UnfitError if unfit == len(failures) else StoreError
        raise kind("; ".join(failures[:REASONS_MAX]))

    async def _connect_to(self, address: Address) -> Connection:
        """Raises QuestionError, UnfitError."""
        connection = await self._access.connect(address, self._timeout_s)
        try:
            spoken = ranges(await connection.ask(ApiVersionsRequest(), ApiVersionsResponse, 0))
            if ApiKey.DESCRIBE_CLIENT_QUOTAS not in spoken:
                raise UnfitError(f"{address}: brokers before 2.6 do not tell their quotas: use file or topic")
            answer = await connection.ask(MetadataRequest(topics=[]), MetadataResponse, METADATA_VERSION)
        except BaseException:
            await connection.aclose()
            raise
        known = [Address(broker.host, broker.port) for broker in answer.brokers]
        self._brokers = list(dict.fromkeys([address, *self._brokers, *known]))[:BROKERS_MAX]
        return connection

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()


def _read(frame: bytes) -> tuple[QuotaTable, Sequence[Skipped]]:
    """Decode the quotas. Raises StoreError."""
    try:
        answer = decode(frame, DescribeClientQuotasResponse, VERSION)
    except ProtocolError as error:
        raise StoreError(str(error)) from None
    if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        raise UnfitError("Weir's principal may not see quotas: allow it DescribeConfigs on the cluster")
    if answer.error_code != ErrorCode.NONE:
        raise StoreError(f"a broker does not tell: {_said(answer.error_code, answer.error_message)}")
    found = imported(answer)
    return found.table, found.skipped


def _said(error_code: int, message: str | None) -> str:
    """Return a broker's error as one line."""
    return " ".join((message or f"error {error_code}").split())[:SAID_CHARS_MAX]


def _shows(table: QuotaTable, changes: Changes) -> bool:
    """Return True if the table has all these values."""
    return all(table.values.get(quota) == rate for quota, rate in changes.items())


def broker_store(config: Config) -> BrokerStore:
    """Return the store; it connects at its first use."""
    return BrokerStore(config.upstream, Access.of(config), config.settings.connect_timeout_s)
