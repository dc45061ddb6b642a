"""A snapshot of the last known quotas, for starts while the store is not available.

The snapshot is a quota file (`quotas.table.quota_file`). Quotas that this format cannot express are omitted,
and logged once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeVar

import structlog
import trio

from weir.proxy.config.settings import ConfigError
from weir.proxy.control.state_directory import PERIOD_S, Put, StateDirectory
from weir.proxy.control.stores.store import Changed, QuotaStore, StoreError, UnfitError
from weir.proxy.files import QUOTAS_BYTES_MAX
from weir.proxy.handlers.quota_api.quota_admin import Changes, ReplicationChanges
from weir.quotas import QuotaFileError, QuotaKey, QuotaTable
from weir.quotas.table.group_entry import GroupEntry, group_entries
from weir.quotas.table.options import Options
from weir.quotas.table.quota_entry import Entry
from weir.quotas.table.quota_file import AnyEntry, entries_of, read, render_entries, table_of
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

    def __init__(self, store: QuotaStore, state: StateDirectory) -> None:
        self._store = store
        self._failure: StoreError | None = None
        self.snapshot: Final = Snapshot(state)

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
            raise ConfigError(f"quotas = {self.name}: {error}") from None
        except StoreError as error:
            self._failure = error
            return await trio.to_thread.run_sync(self.snapshot.read)
        self.snapshot.newest = table
        return table

    async def load(self) -> QuotaTable:
        """Return the quotas in the store. Raises StoreError."""
        return await self._store.load()

    async def alter(
        self, changes: Changes, *, shadow: bool = False, options: Options | None = None
    ) -> QuotaTable:
        """Make the changes in the store, and return all its quotas. Raises StoreError."""
        return await self._store.alter(changes, shadow=shadow, options=options)

    async def alter_replication(self, changes: ReplicationChanges) -> QuotaTable:
        """Make the changes of replication throttles in the store, and return all its quotas. Raises
        StoreError.
        """
        return await self._store.alter_replication(changes)

    async def follow(self, changed: Changed, failed: Callable[[StoreError], None]) -> None:
        """Await `changed` with each new table of the store until cancelled, and have the table written to the
        snapshot. Call `failed` at each failure to read the store, and at once if the store was not available
        at the start.
        """

        async def note(table: QuotaTable) -> None:
            self.snapshot.newest = table
            await changed(table)

        if self._failure is not None:
            failed(self._failure)
        await self._store.follow(note, failed)


class Snapshot:
    """Writes quotas to the snapshot. It keeps the text, and edits only changed entries in it."""

    name: Final = "last-quotas.toml"
    """Unlike that of a quota file, which operators may keep in the same directory."""
    period_s: Final = PERIOD_S

    def __init__(self, state: StateDirectory) -> None:
        self._state = state
        self.newest: QuotaTable | None = None
        """Quotas to write; None as long as the store was not read."""
        self._written: tuple[QuotaTable, QuotaText] | None = None
        self._said = False

    def read(self) -> QuotaTable:
        """Return the quotas in the file; none if the file is missing or cannot be used. Log which of them."""
        table = self._state.read(self.name, QUOTAS_BYTES_MAX, _last_known)
        if table is not None:
            log.error("quota store unavailable, starting with the last known quotas", quotas=len(table))
            return table
        remedy = {"remedy": "set state_dir"} if self._state.path is None else {}
        log.error("quota store unavailable, starting without quotas", **remedy)
        return QuotaTable()

    async def save(self, put: Put) -> None:
        """Write the newest quotas, unless the file has them already. Log once if the format of quota files
        cannot express some of them.
        """
        table, written = self.newest, self._written
        if table is None or (written is not None and table is written[0]):
            return
        text, left_out = await trio.to_thread.run_sync(self.rendered, table)
        if (written is not None and text is written[1]) or await put(text.content):
            self._written = table, text
            if left_out and not self._said:
                self._said = True
                log.warning("quotas not supported by the snapshot", count=len(left_out), first=left_out[0])

    def rendered(self, table: QuotaTable) -> tuple[QuotaText, list[str]]:
        """Return the text of these quotas, and one text for each quota that the format of quota files cannot
        express; none of these if only changed entries are edited.
        """
        text = self._edited(table)
        return _rendered(table) if text is None else (text, [])

    def _edited(self, table: QuotaTable) -> QuotaText | None:
        """Return the text that was last written, with changed entries; None if it must be rendered."""
        if self._written is None:
            return None
        before, text = self._written
        delta = table.delta(before)
        if delta.number > len(table) // 10:  # rendering takes less time then
            return None
        if delta.replication or delta.members or delta.parents:
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


def _last_known(text: str) -> QuotaTable:
    """Return the quotas in the text of a snapshot, also if they contradict each other: they were in force.
    Raises QuotaFileError.
    """
    return table_of(read(text, is_whole=False))


def _rendered(table: QuotaTable) -> tuple[QuotaText, list[str]]:
    """Return the text of a snapshot, and one text for each quota that quota files cannot express."""
    entries: list[AnyEntry] = [
        *group_entries(table.groups),
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
    entries: Iterable[AnyEntry],
) -> tuple[list[AnyEntry], list[str]]:
    """Return the quotas that the format of quota files can express, and an error text for each other one."""
    said: list[AnyEntry] = []
    left_out: list[str] = []
    for entry in entries:
        if isinstance(entry, Entry):
            said += _kept(entry.rates, partial(_with_rates, entry), left_out)
        elif isinstance(entry, GroupEntry):
            said.append(entry)
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
