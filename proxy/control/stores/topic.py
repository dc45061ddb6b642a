"""Quotas in a compacted topic of the cluster, which all Weirs that have this topic configured follow.

An alteration writes all quotas of each altered entity. If two Weirs alter the same entity at the same time,
the later record in the topic wins, for all quotas of the entity.

A Weir marks its records by a header. Records without this header are applied too, because Weirs before this
header wrote such records, and an operator may write some by hand. They are counted, and logged. A client that
reaches the brokers past Weir can forge the header: only the brokers' ACLs can keep that client from writing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import structlog
import trio

from weir.protocol.api import ApiKey
from weir.proxy.config.settings import ConfigError
from weir.proxy.control.cluster.access import Access
from weir.proxy.control.cluster.connection import QuestionError
from weir.proxy.control.cluster.discovery import DiscoveryError, ask_versions, discover
from weir.proxy.control.stores import group_records, replication_records
from weir.proxy.control.stores.record import ConsumerRecords, ProducerRecord, RecordError
from weir.proxy.control.stores.records import StoredQuotas, alteration
from weir.proxy.control.stores.store import Changed, StoreError
from weir.proxy.handlers.quota_api.quota_admin import Changes, ReplicationChanges
from weir.quotas import QuotaFileError, QuotaTable
from weir.quotas.table.group_entry import (
    GroupEntry,
    check_groups,
    concerns_groups,
    regrouped,
)
from weir.quotas.table.options import Options

if TYPE_CHECKING:
    from weir.proxy.config.config import Config

log = structlog.get_logger("weir.quotas")

POLL_S: Final = 0.5
"""Time (s) for which a thread waits for records in one call. Weir cannot interrupt the call, so stopping may
take as long.
"""
PROBE_EVERY_S: Final = 3.0
SILENT_S: Final = 2.0
"""Time (s) without a record, while Weir reads the topic for the first time, after which Weir checks that the
topic still exists.
"""
RETRY_S: Final = 1.0
LOAD_S: Final = 30.0
ALTER_S: Final = 15.0
REPLICAS_MAX: Final = 3
UNREAD: Final = "the quota topic was not read to its end"
UNALTERED: Final = "the quota topic did not take the change, or did not give it back: describe it to see"


class ClusterFacts(NamedTuple):
    """Facts about a cluster that Weir needs in order to create a topic and write to it."""

    brokers: int
    idempotent: bool
    """True if the cluster has idempotent producers (Kafka 0.11 and later)."""


class LogReader(Protocol):
    """Reads a topic's records in order, from its first record; at the end of the topic, waits for new
    records.
    """

    def read(self, timeout_s: float) -> ConsumerRecords:
        """Return the next records; wait for at most `timeout_s`. Raises StoreError."""

    def probe(self) -> None:
        """Check that the topic still exists, and that it was not deleted and created again since the reader
        was made. Raises StoreError.
        """

    def close(self) -> None:
        """Close the reader."""


class LogWriter(Protocol):
    """Appends records to the topic: `send` once, then `wait` until the records are durable."""

    def send(self, records: Sequence[ProducerRecord]) -> None:
        """Start to append the records, without waiting until they are durable. Raises StoreError."""

    def wait(self, timeout_s: float) -> int | None:
        """Wait for at most `timeout_s` until all records are durable. Return the offset of the last record;
        None if the time was too short. Raises StoreError.
        """

    def close(self) -> None:
        """Close the writer. Records that are not durable yet may be lost."""


class Log(Protocol):
    """A topic that quotas are stored in: makes readers and writers of its records.

    Every call may block for seconds, so it runs in a thread. Only one thread at a time may use a reader or
    writer.
    """

    def prepare(self, replication_factor: int) -> None:
        """Create the topic if it is missing, and check its settings. Raises StoreError."""

    def reader(self) -> LogReader:
        """Return a reader at the start of the topic. Raises StoreError."""

    def writer(self, *, idempotent: bool) -> LogWriter:
        """Return a writer. `idempotent` tells if the cluster has idempotent producers. Raises StoreError."""


class TopicStore:
    """Quotas in a compacted topic; implements `store.QuotaStore`. Only one task at a time may run `follow`.
    While no task runs it, each `load` or `alter` reads the whole topic.
    """

    name = "topic"

    def __init__(self, topic: Log, facts: Callable[[], Awaitable[ClusterFacts]]) -> None:
        """Begin without reading the topic. `facts` is a coroutine function that asks the cluster for its
        `ClusterFacts`, and raises StoreError if no broker answers.
        """
        self._log = topic
        self._facts = facts
        self._made = False
        """True once Weir has created the topic, or found that it exists. Weir does not create it a second
        time: if the topic is deleted later, the quotas stay in force.
        """
        self._followed = False
        self._known: QuotaTable | None = None
        """Quotas in the topic, as far as `follow` has read it; None until `follow` has reached the end of the
        topic once.
        """
        self._offset = -1
        self._failure: StoreError | None = None
        """Error with which the latest read by `follow` has failed; None after a successful read."""
        self._moved = trio.Event()
        self._altering = trio.Lock()
        self.skipped = 0
        """Number of records that could not be used, because Weir has not written them or they have another
        version.
        """
        self._skipped_to = -1
        self.foreign = 0
        """Number of records without the header that a Weir gives its records; 0 if the cluster is so old that
        records have no headers.
        """
        self._foreign_to = -1
        self._marks = False
        """True if the cluster's records can have headers (Kafka 0.11 and later)."""

    async def load(self) -> QuotaTable:
        """Create the topic if it is missing, read it to its end, and return its quotas. Raises StoreError."""
        with _bounded(LOAD_S, UNREAD):
            async with self._reading() as reading:
                return await reading.to_end()

    async def follow(self, changed: Changed, failed: Callable[[StoreError], None]) -> None:
        """Read the topic until cancelled, and await `changed` with each new table. After a failure, call
        `failed`, read the topic from its start again, and await `changed` even if the table is the same.
        """
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
        """Append a record for each altered entity to the topic. Wait until Weir has read the records back,
        and return all quotas. Raises StoreError.
        """

        def make(table: QuotaTable) -> list[ProducerRecord]:
            if concerns_groups(changes):
                check_groups(table.altered(changes, shadow=shadow, options=options))
            return alteration(table, changes, shadow=shadow, options=options)

        return await self._alter(make)

    async def alter_replication(self, changes: ReplicationChanges) -> QuotaTable:
        """Append a record for each altered broker and topic, as `alter` does for entities. Raises
        StoreError.
        """
        return await self._alter(lambda table: replication_records.alteration(table.replication, changes))

    async def alter_groups(self, groups: Sequence[GroupEntry], removed: Collection[str] = ()) -> QuotaTable:
        """Append a record for each of these groups that differs, and of those `removed`, which are among
        them; others stay. Return all quotas. Raises StoreError.
        """

        def make(table: QuotaTable) -> list[ProducerRecord]:
            changes = regrouped(table, groups, removed).delta(table)
            left = map(table.groups.members.get, changes.members)
            changed = {*changes.parents, *changes.members.values(), *left}
            return [
                group_records.write(group, removes=group.name in removed)
                for group in groups
                if group.name in changed
            ]

        return await self._alter(make)

    async def _alter(self, make: Callable[[QuotaTable], list[ProducerRecord]]) -> QuotaTable:
        """Append the records that `make` returns for the newest table; wait until Weir has read them back,
        and return all quotas. Raises StoreError.
        """
        async with self._altering:
            with _bounded(ALTER_S, UNALTERED):
                table = await self._newest()
                try:
                    records = make(table)
                except RecordError as error:
                    raise StoreError(str(error)) from None
                except QuotaFileError as error:
                    raise StoreError(f"not altered: {error}") from None
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
        """Read the topic from its start until cancelled, and await `changed` with the table: once at the end
        of the topic, then after new records. Raises StoreError.
        """
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
        """Create the topic if it is missing, and start to read it from its first record. The reader is closed
        at the end of the block. Raises StoreError.
        """
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
        """Count and log a record that Weir cannot use. A record that was counted when the topic was read
        before is not counted again.
        """
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
        """Count and log a record without the header of a Weir. A record that was counted when the topic was
        read before is not counted again.
        """
        if offset > self._foreign_to and self._marks:
            self._foreign_to = offset
            self.foreign += 1
            if str(self.foreign).strip("0") == "1":  # the 1st, the 10th, the 100th
                log.warning(
                    "records of the quota topic without a Weir's mark: another client wrote them",
                    count=self.foreign,
                    offset=offset,
                )

    async def _newest(self) -> QuotaTable:
        """Return the topic's quotas: as `follow` has read them last, or, if no task runs `follow`, by reading
        the topic. Raises StoreError if the topic cannot be read.
        """
        if not self._followed:
            return await self.load()
        while self._known is None:
            if self._failure is not None:
                raise StoreError(f"the quota topic could not be read yet: {self._failure}")
            await self._moved.wait()
        return self._known

    async def _append(self, records: list[ProducerRecord]) -> int:
        """Append the records, wait until they are durable, and return the offset of the last one. Raises
        StoreError.
        """
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
        """Wait until `follow` has read the record at `offset`, and return all quotas. If no task runs
        `follow`, read the whole topic instead. Raises StoreError.
        """
        if not self._followed:
            return await self.load()
        while self._known is None or self._offset < offset:
            await self._moved.wait()
        return self._known


class _Reading:
    """Reads the topic once from its first record to its end, and then new records, into a table of quotas."""

    def __init__(
        self,
        reader: LogReader,
        skip: Callable[[int, RecordError], None],
        note_unmarked: Callable[[int], None],
    ) -> None:
        self._reader = reader
        self._skip = skip
        self._note_unmarked = note_unmarked
        self._stored = StoredQuotas()
        self.offset = -1

    async def to_end(self) -> QuotaTable:
        """Read to the end of the topic, and return its quotas. Raises StoreError."""
        heard_s = trio.current_time()
        while not (batch := await self._read()).at_end:
            if batch.records:
                heard_s = trio.current_time()
            elif trio.current_time() - heard_s >= SILENT_S:
                await trio.to_thread.run_sync(self._reader.probe)
        return await trio.to_thread.run_sync(self._table)

    async def next(self) -> QuotaTable:
        """Wait for new records, and return all quotas with the new records applied. Raises StoreError."""
        probed_s = trio.current_time()
        while not (await self._read()).records:
            if trio.current_time() - probed_s >= PROBE_EVERY_S:
                await trio.to_thread.run_sync(self._reader.probe)
                probed_s = trio.current_time()
        return await trio.to_thread.run_sync(self._table)

    def _table(self) -> QuotaTable:
        return self._stored.table()

    async def _read(self) -> ConsumerRecords:
        batch, errors = await trio.to_thread.run_sync(self._read_blocking)
        for offset, error in errors:
            self._skip(offset, error)
        for found in batch.records:
            if not found.marked:
                self._note_unmarked(found.offset)
        if batch.records:
            self.offset = batch.records[-1].offset
        return batch

    def _read_blocking(self) -> tuple[ConsumerRecords, list[tuple[int, RecordError]]]:
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
    """Raise StoreError if the block takes more than `seconds`. The text of the error begins with `what`."""
    try:
        with trio.fail_after(seconds):
            yield
    except trio.TooSlowError:
        raise StoreError(f"{what} within {seconds:g} s") from None


def topic_store(config: Config) -> TopicStore:
    """Return a store of the quotas in the configured topic. It connects to the cluster at its first use.
    Raises ConfigError if confluent-kafka is not installed.
    """
    try:
        from weir.proxy.control.stores.topic_log import TopicLog, properties  # an optional library of 20 MB
    except ImportError:
        raise ConfigError(
            "quotas = topic needs confluent-kafka: install it beside Weir, pip install confluent-kafka"
        ) from None
    return TopicStore(TopicLog(config.quota_topic, properties(config)), partial(cluster_facts, config))


async def cluster_facts(config: Config) -> ClusterFacts:
    """Ask the cluster for the facts that the topic store needs. Raises StoreError."""
    access, timeout_s = Access.of(config), config.connect_timeout_s
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
