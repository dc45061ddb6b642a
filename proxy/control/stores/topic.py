"""Quotas in a compacted topic of the cluster, followed by every Weir that has it configured.

Alterations write whole entities. If two Weirs alter the same entity at the same time, the later record in the
topic wins, for all quotas of the entity.

A Weir marks its records by a header. Records without it are applied, because Weirs before the mark wrote such
records and an operator may write some by hand; they are counted, and the log says so. A client that reaches
the brokers past Weir can forge the mark: only the brokers' ACLs keep it from writing.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import structlog
import trio

from protocol.api import ApiKey
from proxy.config.settings import ConfigError
from proxy.control.cluster.access import Access
from proxy.control.cluster.connection import QuestionError
from proxy.control.cluster.discovery import DiscoveryError, ask_versions, discover
from proxy.control.stores.records import Batch, Record, RecordError, Stored, alteration
from proxy.control.stores.store import Changed, StoreError
from proxy.handlers.quota_api.quota_admin import Changes
from quotas import QuotaTable
from quotas.table.options import Options

if TYPE_CHECKING:
    from proxy.config.config import Config

log = structlog.get_logger("weir.quotas")

POLL_S: Final = 0.5
"""Time (s) that a thread waits for records, and so the delay of a stop."""
PROBE_EVERY_S: Final = 3.0
SILENT_S: Final = 2.0
"""Time (s) without records while loading, after which the topic's existence is checked."""
RETRY_S: Final = 1.0
LOAD_S: Final = 30.0
ALTER_S: Final = 15.0
REPLICAS_MAX: Final = 3
UNREAD: Final = "the quota topic was not read to its end"
UNALTERED: Final = "the quota topic did not take the change, or did not give it back: describe it to see"
TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
"""Kafka's `Topic.validate`."""


class ClusterFacts(NamedTuple):
    """Facts about a cluster, needed before its topic is used."""

    brokers: int
    idempotent: bool
    """True if the cluster has idempotent producers (0.11)."""


class LogReader(Protocol):
    """Reads the log from its start to its end, and on."""

    def read(self, timeout_s: float) -> Batch:
        """Return new records, waiting at most `timeout_s`. Raises StoreError."""

    def probe(self) -> None:
        """Check that the log still exists, and is the same one. Raises StoreError."""

    def close(self) -> None:
        """Close the reader."""


class LogWriter(Protocol):
    """Appends one group of records."""

    def send(self, records: Sequence[Record]) -> None:
        """Begin to append. Raises StoreError."""

    def wait(self, timeout_s: float) -> int | None:
        """Return the offset of the last record once all are durable; None after `timeout_s`. Raises
        StoreError.
        """

    def close(self) -> None:
        """Close the writer; records that are not durable yet may be lost."""


class Log(Protocol):
    """The log behind a topic store: read from its start, and appended to.

    Every call may block for seconds, and runs in a thread; each reader or writer is used by one thread at a
    time.
    """

    def prepare(self, replication_factor: int) -> None:
        """Create the log if it is missing, and check its settings. Raises StoreError."""

    def reader(self) -> LogReader:
        """Return a reader at the start. Raises StoreError."""

    def writer(self, *, idempotent: bool) -> LogWriter:
        """Return a writer. Raises StoreError."""


class TopicStore:
    """See `store.QuotaStore`. `follow` may run once; without it each call reads the whole topic."""

    name = "topic"

    def __init__(self, topic: Log, facts: Callable[[], Awaitable[ClusterFacts]]) -> None:
        """`facts` raises StoreError."""
        self._log = topic
        self._facts = facts
        self._made = False
        """True once the topic exists. If it is deleted later, the quotas stay in force."""
        self._followed = False
        self._known: QuotaTable | None = None
        """The follower's table, once it has read the whole topic."""
        self._offset = -1
        self._failure: StoreError | None = None
        """Why the follower has failed; None while it works."""
        self._moved = trio.Event()
        self._altering = trio.Lock()
        self.skipped = 0
        """Number of records that were not Weir's, or had another version."""
        self._skipped_to = -1
        self.foreign = 0
        """Number of records without a Weir's mark; 0 on clusters whose records have no headers."""
        self._foreign_to = -1
        self._marks = False
        """True if the cluster's records have headers."""

    async def load(self) -> QuotaTable:
        """Create the topic if it is missing, and read it to its end. Raises StoreError."""
        with _bounded(LOAD_S, UNREAD):
            async with self._reading() as reading:
                return await reading.to_end()

    async def follow(self, changed: Changed, failed: Callable[[StoreError], None]) -> None:
        """Read on until cancelled; start again after a failure, and then always call `changed`."""
        self._followed = True
        try:
            while True:
                try:
                    await self._follow(changed)
                except StoreError as error:
                    self._failure = error
                    self._wake()
                    failed(error)
                await trio.sleep(RETRY_S)
        finally:
            self._followed = False

    async def alter(
        self, changes: Changes, *, shadow: bool = False, options: Options | None = None
    ) -> QuotaTable:
        """Write the entities that change, and return once the change was read back. Raises StoreError."""
        async with self._altering:
            with _bounded(ALTER_S, UNALTERED):
                table = await self._newest()
                try:
                    records = alteration(table, changes, shadow=shadow, options=options)
                except RecordError as error:
                    raise StoreError(str(error)) from None
                offset = await self._append(records) if records else -1
                return await self._read_back(offset)

    async def _prepare(self) -> None:
        if self._made:
            return
        facts = await self._facts()
        make = partial(self._log.prepare, min(REPLICAS_MAX, facts.brokers))
        await trio.to_thread.run_sync(make, abandon_on_cancel=True)
        self._marks = facts.idempotent
        self._made = True

    async def _follow(self, changed: Changed) -> None:
        """Raises StoreError."""
        async with self._reading() as reading:
            with _bounded(LOAD_S, UNREAD):
                table = await reading.to_end()
            while True:
                self._known, self._offset, self._failure = table, reading.offset, None
                await changed(table)
                self._wake()
                table = await reading.next()

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[_Reading]:
        """Raises StoreError."""
        await self._prepare()
        reader = await trio.to_thread.run_sync(self._log.reader)
        try:
            yield _Reading(reader, self._skip, self._note_unmarked)
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(reader.close)

    def _wake(self) -> None:
        moved, self._moved = self._moved, trio.Event()
        moved.set()

    def _skip(self, offset: int, error: RecordError) -> None:
        """Count a record that cannot be used; further passes over the topic do not count it again."""
        if offset > self._skipped_to:
            self._skipped_to = offset
            self.skipped += 1
            if str(self.skipped).strip("0") == "1":  # the 1st, the 10th, the 100th
                log.warning(
                    "records of the quota topic skipped",
                    count=self.skipped,
                    offset=offset,
                    reason=str(error),
                )

    def _note_unmarked(self, offset: int) -> None:
        """Count a record that no Weir has marked, once."""
        if offset > self._foreign_to and self._marks:
            self._foreign_to = offset
            self.foreign += 1
            if str(self.foreign).strip("0") == "1":  # the 1st, the 10th, the 100th
                log.warning(
                    "records of the quota topic without a Weir's mark: another client wrote them, "
                    "or an older Weir",
                    count=self.foreign,
                    offset=offset,
                )

    async def _newest(self) -> QuotaTable:
        """Raises StoreError."""
        if not self._followed:
            return await self.load()
        while self._known is None:
            if self._failure is not None:
                raise StoreError(f"the quota topic could not be read yet: {self._failure}")
            await self._moved.wait()
        return self._known

    async def _append(self, records: list[Record]) -> int:
        """Return the last record's offset. Raises StoreError."""
        facts = await self._facts()
        writer = await trio.to_thread.run_sync(partial(self._log.writer, idempotent=facts.idempotent))
        try:
            await trio.to_thread.run_sync(writer.send, records)
            while (offset := await trio.to_thread.run_sync(writer.wait, POLL_S)) is None:
                pass
            return offset
        finally:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(writer.close)

    async def _read_back(self, offset: int) -> QuotaTable:
        """Raises StoreError."""
        if not self._followed:
            return await self.load()
        while self._known is None or self._offset < offset:
            await self._moved.wait()
        return self._known


class _Reading:
    """One pass over the topic, from its start."""

    def __init__(
        self,
        reader: LogReader,
        skip: Callable[[int, RecordError], None],
        note_unmarked: Callable[[int], None],
    ) -> None:
        self._reader = reader
        self._skip = skip
        self._note_unmarked = note_unmarked
        self._stored = Stored()
        self.offset = -1

    async def to_end(self) -> QuotaTable:
        """Read to the end. Raises StoreError."""
        heard_s = trio.current_time()
        while not (batch := await self._read()).at_end:
            if batch.records:
                heard_s = trio.current_time()
            elif trio.current_time() - heard_s >= SILENT_S:
                await trio.to_thread.run_sync(self._reader.probe)
        return await trio.to_thread.run_sync(self._table)

    async def next(self) -> QuotaTable:
        """Return the table when it has changed. Raises StoreError."""
        probed_s = trio.current_time()
        while not (await self._read()).records:
            if trio.current_time() - probed_s >= PROBE_EVERY_S:
                await trio.to_thread.run_sync(self._reader.probe)
                probed_s = trio.current_time()
        return await trio.to_thread.run_sync(self._table)

    def _table(self) -> QuotaTable:
        return self._stored.table()

    async def _read(self) -> Batch:
        batch, errors = await trio.to_thread.run_sync(self._read_blocking)
        for offset, error in errors:
            self._skip(offset, error)
        for found in batch.records:
            if not found.marked:
                self._note_unmarked(found.offset)
        if batch.records:
            self.offset = batch.records[-1].offset
        return batch

    def _read_blocking(self) -> tuple[Batch, list[tuple[int, RecordError]]]:
        batch = self._reader.read(POLL_S)
        errors = []
        for found in batch.records:
            try:
                self._stored.apply(found.key, found.value)
            except RecordError as error:
                errors.append((found.offset, error))
        return batch, errors


@contextmanager
def _bounded(seconds: float, what: str) -> Iterator[None]:
    """Raise StoreError after this time."""
    try:
        with trio.fail_after(seconds):
            yield
    except trio.TooSlowError:
        raise StoreError(f"{what} within {seconds:g} s") from None


def topic_store(config: Config) -> TopicStore:
    """Return the store; it connects at its first use. Raises ConfigError."""
    topic = config.settings.quota_topic
    if not TOPIC_NAME.fullmatch(topic):
        raise ConfigError(
            f"quota_topic is {topic!r}, must be a topic's name: letters, digits, '.', '_' and '-'"
        )
    try:
        from proxy.control.stores.topic_log import TopicLog, properties  # optional, and 20 MB
    except ImportError:
        raise ConfigError(
            "quota_store = topic needs confluent-kafka: install it beside Weir, pip install confluent-kafka"
        ) from None
    return TopicStore(TopicLog(topic, properties(config)), partial(cluster_facts, config))


async def cluster_facts(config: Config) -> ClusterFacts:
    """Ask the cluster. Raises StoreError."""
    access, timeout_s = Access.of(config), config.settings.connect_timeout_s
    failure: Exception | None = None
    try:
        nodes = await discover(config.upstream, timeout_s, access)
        for address in [*nodes.values(), *config.upstream]:
            try:
                versions = await ask_versions(address, timeout_s, access)
            except QuestionError as error:
                failure = error
            else:
                return ClusterFacts(len(nodes), ApiKey.INIT_PRODUCER_ID in versions)
    except DiscoveryError as error:
        failure = error
    raise StoreError(f"no broker answers: {failure}")
