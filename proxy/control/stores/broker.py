"""Quotas stored by the brokers (KIP-546, Kafka 2.6 and later), which Weir copies and enforces.

Weir keeps one connection and asks every second. It compares the responses as bytes, and decodes only changed
ones. Quotas that Weir does not support are skipped, and logged once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
import trio

from weir.protocol.api import ApiKey
from weir.protocol.error_codes import ErrorCode
from weir.protocol.errors import ProtocolError
from weir.protocol.messages import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeClientQuotasResponse,
    MetadataRequest,
    MetadataResponse,
)
from weir.proxy.addresses import Address
from weir.proxy.control.cluster.access import Access
from weir.proxy.control.cluster.connection import BrokerClosedError, OwnConnection, QuestionError, decode
from weir.proxy.control.cluster.discovery import METADATA_VERSION
from weir.proxy.control.stores.store import Changed, StoreError, UnfitError
from weir.proxy.control.stores.wire_quotas import EVERYTHING, VERSION, as_request, imported
from weir.proxy.handlers.api_versions.api_versions import ranges
from weir.proxy.handlers.quota_api.quota_admin import Changes, ReplicationChanges
from weir.quotas import QuotaTable
from weir.quotas.table.imported import Skipped
from weir.quotas.table.options import PLAIN, Options

if TYPE_CHECKING:
    from weir.proxy.config.config import Config

T = TypeVar("T")

log = structlog.get_logger("weir.quotas")

ASK_EVERY_S: Final = 1.0
SHARE: Final = 20
"""Minimum pause between two requests for the quotas, as a multiple of the time that the last request took, so
that large responses are requested less often.
"""
LOAD_S: Final = 30.0
SETTLE_STEPS: Final = 50
"""Maximum number of times to ask for the quotas after an alteration, until the response contains the
alteration. Another broker may have stored it, so it may appear late.
"""
SETTLE_STEP_S: Final = 0.1
STORED_AT: Final = 8
"""Offset (bytes) in a DescribeClientQuotas response at which the stored quotas begin, behind correlation id
and throttle_time_ms.
"""
SAID_MAX: Final = 1000
SAID_CHARS_MAX: Final = 200
REASONS_MAX: Final = 3
BROKERS_MAX: Final = 100


class BrokerStore:
    """Quotas stored by the brokers; implements `store.QuotaStore`. `follow` may run once at a time; while it
    does not run, each call opens a connection of its own.
    """

    name = "broker"

    def __init__(self, brokers: Sequence[Address], access: Access, timeout_s: float) -> None:
        """Begin without a connection. Weir tries `brokers` in turn until one accepts a connection, and later
        also the other brokers that this broker lists.
        """
        self._brokers = list(brokers)
        self._access = access
        self._timeout_s = timeout_s
        self._connection: OwnConnection | None = None
        self._turn = trio.Lock()
        self._followed = False
        self._known: tuple[bytes, QuotaTable] | None = None
        """The stored quotas in the last response: first as encoded bytes, then decoded. None before the first
        response.
        """
        self._said: set[Skipped] = set()

    async def load(self) -> QuotaTable:
        """Return the brokers' quotas. Raises StoreError; UnfitError if the brokers lack the API, or do not
        authorize Weir.
        """
        try:
            with trio.fail_after(LOAD_S):
                return await self._in_turn(self._ask)
        except trio.TooSlowError:
            raise StoreError(f"no broker has told its quotas within {LOAD_S:g} s") from None

    async def follow(self, changed: Changed, failed: Callable[[StoreError], None]) -> None:
        """Ask the brokers for their quotas about once a second, until cancelled. Await `changed` with each
        new table, and call `failed` when no broker answers.
        """
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

    async def alter(
        self, changes: Changes, *, shadow: bool = False, options: Options | None = None
    ) -> QuotaTable:
        """Have a broker store the changes. Ask for the quotas until the response contains the changes, and
        return all quotas. Raises StoreError, also for shadow entries and options, which brokers do not store.
        """
        if shadow:
            raise StoreError(
                "brokers store no shadow entries: set quota_mode = shadow, or quotas = FILE or topic"
            )
        if options not in (None, PLAIN):
            raise StoreError(
                "brokers store no pacing, no scope and no end (until): set quota_pacing, "
                "or quotas = FILE or topic"
            )
        request = as_request(changes)
        return await self._in_turn(partial(self._alter, request, changes))

    async def alter_replication(self, changes: ReplicationChanges) -> QuotaTable:
        """Refuse the changes, because brokers store throttles as configurations, not as quotas: raise
        StoreError.
        """
        del changes
        raise StoreError(
            "quotas = broker has no replication throttles: set replication_throttles = brokers, or use "
            "another place for quotas"
        )

    async def _in_turn(self, work: Callable[[], Awaitable[QuotaTable]]) -> QuotaTable:
        async with self._turn:
            try:
                return await work()
            finally:
                if not self._followed:
                    await self._close()

    async def _ask(self) -> QuotaTable:
        """Ask a broker for the quotas and return them. Decode the response only if its bytes differ from the
        last response. Raises StoreError.
        """
        frame = await self._answer(lambda connection: connection.ask_raw(EVERYTHING, VERSION))
        stored = frame[STORED_AT:]
        if self._known is None or self._known[0] != stored:
            table, skipped = await trio.to_thread.run_sync(_read, frame)
            self._known = stored, table
            self._say(skipped)
        return self._known[1]

    async def _alter(self, request: AlterClientQuotasRequest, changes: Changes) -> QuotaTable:
        """Send the alteration to a broker. Ask for the quotas until the response contains the changes, and
        return all quotas. Raises StoreError.
        """
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
        """Log a warning about brokers' quotas that Weir does not support, and so does not enforce. Each quota
        is logged once.
        """
        new = [skip for skip in skipped if skip not in self._said]
        if new and len(self._said) < SAID_MAX:
            self._said.update(new[:SAID_MAX])
            log.warning("brokers' quotas not enforced", count=len(new), first=str(new[0]))

    # Connections

    async def _answer(self, ask: Callable[[OwnConnection], Awaitable[T]]) -> T:
        """Call `ask` with the open connection, or with a new one if there is no connection or the broker has
        closed it: brokers close connections that are idle, or whose login has expired. Raises StoreError.
        """
        try:
            if self._connection is not None:
                try:
                    return await ask(self._connection)
                except BrokerClosedError:
                    await self._close()
            self._connection = await self._connect()
            return await ask(self._connection)
        except QuestionError as error:
            await self._close()
            raise StoreError(str(error)) from None
        except BaseException:
            await self._close()  # a response may still arrive on it
            raise

    async def _connect(self) -> OwnConnection:
        """Return a connection to the first broker that accepts one and has the quota APIs. Raises StoreError;
        UnfitError if every broker was reached and has no quota APIs.
        """
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

    async def _connect_to(self, address: Address) -> OwnConnection:
        """Connect to this broker and check that it has the quota APIs; return the connection, and remember
        the brokers that it lists. Raises QuestionError; UnfitError if the broker has no quota APIs.
        """
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
    """Decode a DescribeClientQuotas response; return its quotas as a table, and those that Weir does not
    support. Raises StoreError; UnfitError if Weir is not authorized to describe quotas.
    """
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
    """Return a broker's error message as one line."""
    return " ".join((message or f"error {error_code}").split())[:SAID_CHARS_MAX]


def _shows(table: QuotaTable, changes: Changes) -> bool:
    """Return True if every changed quota has its new value in the table."""
    return all(table.values.get(quota) == rate for quota, rate in changes.items())


def broker_store(config: Config) -> BrokerStore:
    """Return a store of the quotas of the configured cluster. It connects to a broker at its first use."""
    return BrokerStore(config.upstream, Access.of(config), config.connect_timeout_s)
