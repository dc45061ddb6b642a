"""A snapshot of the last known quotas, for starts while the store is not available.

The snapshot is a quota file (`quotas.table.quota_file`). Quotas that this format cannot express are omitted,
and logged once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import structlog
import trio

from weir.proxy.atomic_write import replace
from weir.proxy.config.settings import ConfigError
from weir.proxy.control.stores.store import Changed, QuotaStore, StoreError, UnfitError
from weir.proxy.files import QUOTAS_BYTES_MAX, read_text
from weir.proxy.handlers.quota_api.quota_admin import Changes, ReplicationChanges
from weir.proxy.outage import Outage
from weir.quotas import QuotaFileError, QuotaKey, QuotaTable, parse
from weir.quotas.table.options import Options
from weir.quotas.table.quota_entry import Entry
from weir.quotas.table.quota_file import entries_of, render_entries
from weir.quotas.table.quota_table import Quota
from weir.quotas.table.quota_text import QuotaText
from weir.quotas.table.replication_entry import ReplicationEntry, replication_entries

log = structlog.get_logger("weir.quotas")

K = TypeVar("K")
V = TypeVar("V")

HEAD: Final = "# The last known quotas, written by weir; changes made here are lost.\n\n"


class LastKnown:
    """A store that keeps a snapshot: a local file with the quotas last read from another store. If that store
    is not available at the start, the quotas are read from the snapshot.
    """

    def __init__(self, store: QuotaStore, path: Path | None) -> None:
        """Begin with the store to be copied, and the path of the snapshot; None for no snapshot."""
        self._store = store
        self._path = path
        self._failure: StoreError | None = None
        self._newest: QuotaTable | None = None
        self._file = None if path is None else SnapshotFile(path)
        self._changed = trio.Event()
        self._said = False
        self._outage = Outage(log, "quota snapshot not written", "quota snapshot written again")

    @property
    def name(self) -> str:
        """Name of the store."""
        return self._store.name

    async def start(self) -> QuotaTable:
        """Return the quotas in the store; if the store is not available, those in the snapshot; if there is
        no readable snapshot, no quotas.

        Raises ConfigError if the cluster can never serve as this store.
        """
        try:
            table = await self._store.load()
        except UnfitError as error:
            raise ConfigError(f"quota_store = {self.name}: {error}") from None
        except StoreError as error:
            self._failure = error
            return await trio.to_thread.run_sync(self._last_known)
        self._note(table)
        return table

    async def load(self) -> QuotaTable:
        """Return the quotas in the store. Raises StoreError."""
        return await self._store.load()

    async def alter(self, changes: Changes) -> QuotaTable:
        """Make the changes in the store, and return all its quotas. Raises StoreError."""
        return await self._store.alter(changes)

    async def alter_replication(self, changes: ReplicationChanges) -> QuotaTable:
        """Make the changes of replication throttles in the store, and return all its quotas. Raises
        StoreError.
        """
        return await self._store.alter_replication(changes)

    async def follow(self, changed: Changed, failed: Callable[[StoreError], None]) -> None:
        """Await `changed` with each new table of the store until cancelled, and write the table to the
        snapshot. Call `failed` at each failure to read the store, and at once if the store was not available
        at the start.
        """

        async def note(table: QuotaTable) -> None:
            self._note(table)
            await changed(table)

        if self._failure is not None:
            failed(self._failure)

        async with trio.open_nursery() as nursery:
            if self._file is not None:
                nursery.start_soon(self._write_forever, self._file)
            await self._store.follow(note, failed)
            nursery.cancel_scope.cancel()

    def _note(self, table: QuotaTable) -> None:
        self._newest = table
        self._changed.set()

    async def _write_forever(self, file: SnapshotFile) -> None:
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            assert self._newest is not None  # set when the table changed
            try:
                left_out = await trio.to_thread.run_sync(file.write, self._newest)
            except OSError as error:
                self._outage.failed(file=str(file.path), reason=error.strerror or str(error))
                continue
            self._outage.over(file=str(file.path))
            if left_out and not self._said:
                self._said = True
                log.warning("quotas not supported by the snapshot", count=len(left_out), first=left_out[0])

    def _last_known(self) -> QuotaTable:
        path = self._path
        if path is None:
            log.error("quota store unavailable, starting without quotas", remedy="configure quota_snapshot")
            return QuotaTable()
        try:
            table = read_snapshot(path)
        except StoreError as error:
            log.error("quota store and snapshot unavailable, starting without quotas", reason=str(error))
            return QuotaTable()
        log.error(
            "quota store unavailable, starting with the last known quotas", file=str(path), quotas=len(table)
        )
        return table


def read_snapshot(path: Path) -> QuotaTable:
    """Return the quotas in the snapshot. Raises StoreError if the snapshot cannot be read."""
    try:
        return parse(read_text(path, QUOTAS_BYTES_MAX))
    except OSError as error:
        raise StoreError(f"{path}: cannot read the snapshot: {error.strerror}") from None
    except QuotaFileError as error:
        raise StoreError(f"{path}: {error}") from None


class SnapshotFile:
    """Writes quotas to a snapshot. It keeps the text, and edits only changed entries in it."""

    def __init__(self, path: Path) -> None:
        """Begin without reading or writing the file."""
        self.path: Final = path
        self._written: tuple[QuotaTable, QuotaText] | None = None

    def write(self, table: QuotaTable) -> list[str]:
        """Write the quotas, atomically, unless the file has them already. Return one text for each quota that
        the format of quota files cannot express; none if only changed entries are written. Raises OSError.
        """
        text, left_out = self._edited(table), list[str]()
        if text is None:
            text, left_out = _rendered(table)
        if self._written is None or text is not self._written[1]:
            replace(self.path, text.content)
        self._written = table, text
        return left_out

    def _edited(self, table: QuotaTable) -> QuotaText | None:
        """Return the text that was last written, with changed entries; None if it must be rendered."""
        if self._written is None:
            return None
        before, text = self._written
        delta = table.delta(before)
        if delta.replication or delta.number > len(table) // 10:  # rendering takes less time then
            return None
        groups: dict[tuple[bool, Options], dict[Quota, float | None]] = {}
        for shadow, side in ((False, delta.enforced), (True, delta.shadow)):
            for quota, new in side.items():
                options = table.options_of(quota[0], shadow=shadow)
                groups.setdefault((shadow, options), {})[quota] = new and new.value
        try:
            for (shadow, options), changes in groups.items():
                text = text.edited(changes, shadow=shadow, options=options)
        except QuotaFileError:
            return None
        return text


def _rendered(table: QuotaTable) -> tuple[QuotaText, list[str]]:
    """Return the text of a snapshot, and one text for each quota that quota files cannot express."""
    entries: list[Entry | ReplicationEntry] = [
        *entries_of(table),
        *replication_entries(table.replication),
    ]
    left_out: list[str] = []
    try:
        text = render_entries(entries)
    except QuotaFileError:
        entries, left_out = _what_can_be_said(entries)
        text = render_entries(entries)
    return QuotaText(HEAD + text, [entry for entry in entries if isinstance(entry, Entry)]), left_out


def _what_can_be_said(
    entries: Iterable[Entry | ReplicationEntry],
) -> tuple[list[Entry | ReplicationEntry], list[str]]:
    """Return the quotas that the format of quota files can express, and an error text for each other one."""
    said: list[Entry | ReplicationEntry] = []
    left_out: list[str] = []
    for entry in entries:
        if isinstance(entry, Entry):
            said += _kept(entry.rates, partial(_with_rates, entry), left_out)
        else:
            said += _kept(entry.values, partial(ReplicationEntry, entry.resource), left_out)
    return said, left_out


def _with_rates(entry: Entry, rates: dict[QuotaKey, float]) -> Entry:
    return entry._replace(rates=rates)


def _kept(
    values: Mapping[K, V], entry_of: Callable[[dict[K, V]], Entry | ReplicationEntry], left_out: list[str]
) -> list[Entry | ReplicationEntry]:
    """Return an entry of the values that the format can express, as a list of at most one entry; add an error
    text to `left_out` for each other value.
    """
    kept: dict[K, V] = {}
    for key, value in values.items():
        try:
            render_entries([entry_of({key: value})])
        except QuotaFileError as error:
            left_out.append(str(error))
        else:
            kept[key] = value
    return [entry_of(kept)] if kept else []
