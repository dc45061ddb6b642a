"""Write files of a state directory once, as a Weir that stops does."""

from __future__ import annotations

from pathlib import Path

import trio

from weir.proxy.control.state_directory import StateDirectory, StateFile
from weir.proxy.control.stores.snapshot import Snapshot
from weir.quotas import QuotaTable


async def keep_once(directory: Path, file: StateFile) -> None:
    with trio.CancelScope() as scope:
        await StateDirectory(directory).keep(file, scope.cancel)


def snapshot_of(directory: Path, table: QuotaTable) -> Snapshot:
    """A snapshot after writing the table."""
    snapshot = Snapshot(StateDirectory(directory))
    snapshot.newest = table
    trio.run(keep_once, directory, snapshot)
    return snapshot


def read_snapshot(directory: Path) -> QuotaTable:
    return Snapshot(StateDirectory(directory)).read()
