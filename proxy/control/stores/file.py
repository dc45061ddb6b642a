"""Quotas in a file. Weir reads the file when it has changed, and rewrites it for alterations over the wire.

A rewrite keeps the operator's text where possible (`quotas.table.quota_edit`), and is atomic: any reader,
even after a crash, finds the old text or the new one.

Weir keeps the text, and parses and edits only the blocks with changed entries (`quotas.table.quota_text`).
The bytes of the whole file are written nevertheless: 6 MB for 100,000 entries, in about 10 ms of CPU.
Rejected: a journal beside the file, and SQLite. The file would not be the truth any more for editors, for
`weir quotas`, for other Weirs and for older ones, and the journal would have to be merged into each edit.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import trio

from weir.proxy import file_watch
from weir.proxy.atomic_write import PRIVATE, replace
from weir.proxy.config.settings import ConfigError
from weir.proxy.control.stores.store import Changed, StoreError
from weir.proxy.file_watch import FileWatch, Stamp, stamp
from weir.proxy.files import QUOTAS_BYTES_MAX, read_bytes, text_of
from weir.proxy.handlers.quota_api.quota_admin import Changes, ReplicationChanges
from weir.quotas import QuotaFileError, QuotaTable
from weir.quotas.table.group_entry import check_groups, concerns_groups
from weir.quotas.table.options import Options
from weir.quotas.table.quota_file import read, table_of
from weir.quotas.table.quota_text import CANNOT, QuotaText
from weir.quotas.table.replication_edit import edited_replication

C = TypeVar("C", Changes, ReplicationChanges)

TRIES: Final = 3
"""Number of attempts at an alteration; an attempt fails if another process writes the file meanwhile."""
LOCK_TRIES: Final = 100
LOCK_STEP_S: Final = 0.1
"""Time (s) between attempts to lock a file that another process has locked. Altering 100,000 entries takes
seconds.
"""


class QuotaFileContent(NamedTuple):
    """The content of the quota file."""

    table: QuotaTable
    seen: Stamp
    """Modification time, size and inode of the file with this content."""
    text: QuotaText


class FileStore:
    """Quotas in one file; implements `store.QuotaStore`. Without a path, there are no quotas and alterations
    fail.
    """

    name = "file"

    def __init__(self, path: Path | None) -> None:
        """Begin without reading the file; `start` or `load` reads it."""
        self._path = path
        self._watch = FileWatch(() if path is None else (path,))
        self._turn = trio.Lock()
        self._found: QuotaFileContent | None = None
        """Content that was last read or written."""

    def start(self) -> QuotaTable:
        """Read the quota file and return its quotas; called before Trio runs. Raises ConfigError, whose text
        is one line with file, position and remedy.
        """
        if self._path is None:
            return QuotaTable()
        return self._known(_load(self._path))

    async def load(self) -> QuotaTable:
        """Read the file in a thread, because 100,000 entries take seconds; return its quotas. Raises
        StoreError.
        """
        async with self._turn:
            return await self._load()

    async def alter(
        self, changes: Changes, *, shadow: bool = False, options: Options | None = None
    ) -> QuotaTable:
        """Make the changes in the file, in a thread; return all its quotas. Raises StoreError."""
        return await self._rewrite(partial(rewrite, shadow=shadow, options=options), changes)

    async def alter_replication(self, changes: ReplicationChanges) -> QuotaTable:
        """Make the changes of replication throttles in the file, in a thread; return all its quotas. Raises
        StoreError.
        """
        return await self._rewrite(rewrite_replication, changes)

    async def _rewrite(
        self, make: Callable[[Path, C, QuotaFileContent | None], QuotaFileContent], changes: C
    ) -> QuotaTable:
        if self._path is None:
            raise StoreError("there is no quota file: start weir with --quotas FILE, or set quotas")
        async with self._turn:
            return self._known(await trio.to_thread.run_sync(make, self._path, changes, self._found))

    async def follow(self, changed: Changed, failed: Callable[[StoreError], None]) -> None:
        """Read the file whenever it has changed, until cancelled. Await `changed` with the quotas; call
        `failed` if the file cannot be read.
        """
        while self._path is not None:
            await trio.sleep(file_watch.LOOK_S)
            await self.look(changed, failed)

    async def look(self, changed: Changed, failed: Callable[[StoreError], None]) -> None:
        """Read the file if it has changed. Await `changed` with the quotas; call `failed` if the file cannot
        be read.
        """
        async with self._turn:
            if not await self._watch.look():
                return
            try:
                table = await self._load()
            except StoreError as error:
                failed(error)
            else:
                await changed(table)

    async def _load(self) -> QuotaTable:
        """Read the file in a thread, and return its quotas. Raises StoreError."""
        if self._path is None:
            return QuotaTable()
        self._watch.read = await trio.to_thread.run_sync(self._watch.stamps)
        try:
            return self._known(await trio.to_thread.run_sync(_load, self._path))
        except ConfigError as error:
            raise StoreError(str(error)) from None

    def _known(self, found: QuotaFileContent) -> QuotaTable:
        self._watch.read, self._found = (found.seen,), found
        return found.table


def read_quota_file(path: Path | None) -> QuotaTable:
    """Read a quota file, and return its quotas; no quotas if `path` is None. Raises ConfigError, whose text
    is one line with file, position and remedy.
    """
    return QuotaTable() if path is None else _load(path).table


def rewrite(
    path: Path,
    changes: Changes,
    known: QuotaFileContent | None = None,
    *,
    shadow: bool = False,
    options: Options | None = None,
) -> QuotaFileContent:
    """Make the changes in the quota file, durably; return the file's content afterwards. Blocks. Raises
    StoreError.

    The changes apply to enforced entries, or with `shadow` to shadow entries. The altered entries get
    `options` (pacing, scope); None keeps the options that they have. The file is not written if it has all
    these values already. It is read unless its content is `known`. If another process has written the file
    since then, it is read again, and the changes are made in its new text.
    """

    def edit(found: QuotaFileContent) -> tuple[QuotaText, QuotaTable]:
        text = found.text.edited(changes, shadow=shadow, options=options)
        table = found.table.altered(changes, shadow=shadow, options=options)
        if concerns_groups(changes):
            check_groups(table)
        return text, table

    return _rewritten(path, known, edit)


def rewrite_replication(
    path: Path, changes: ReplicationChanges, known: QuotaFileContent | None = None
) -> QuotaFileContent:
    """Make the changes of replication throttles in the quota file, like `rewrite`. Blocks. Raises
    StoreError.
    """

    def edit(found: QuotaFileContent) -> tuple[QuotaText, QuotaTable]:
        text = edited_replication(str(found.text), changes)
        entries, table = read(text), found.table.replication_altered(changes)
        if table_of(entries) != table:
            raise QuotaFileError(CANNOT)
        return QuotaText(text, entries.quotas, found.text.mark), table

    return _rewritten(path, known, edit)


def _rewritten(
    path: Path,
    known: QuotaFileContent | None,
    edit: Callable[[QuotaFileContent], tuple[QuotaText, QuotaTable]],
) -> QuotaFileContent:
    """Replace the content of the quota file by the result of `edit`. Raises StoreError."""
    with _held(path):
        for _try in range(TRIES):
            found = _rewrite(path, known, edit)
            if found is not None:
                return found
            known = None
    raise StoreError(f"{path}: somebody else keeps writing the quota file: try again")


@contextlib.contextmanager
def _held(path: Path) -> Iterator[None]:
    """Hold a lock during the block, so that no other Weir and no `weir quotas` alters the quota file. Raises
    StoreError if another process keeps the lock.

    The lock is on a separate file beside the quota file, and only the file's owner can open that file. A lock
    on the directory would not do: any process that may read a directory can lock it.
    """
    lock = path.with_name(f".{path.name}.lock")
    fd = _locked(path, lock)
    try:
        yield
    finally:
        if fd is not None:
            with contextlib.suppress(OSError):
                lock.unlink()
            os.close(fd)


def _locked(path: Path, lock: Path) -> int | None:
    """Open and lock the file `lock`, and return its descriptor. Return None if the directory cannot be
    written, because the quota file beside it cannot be written then either. Raises StoreError if another
    process keeps the lock.
    """
    for _try in range(LOCK_TRIES):
        try:
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE)
        except PermissionError:  # another user's lock file
            if not os.access(path.parent, os.W_OK):
                return None
        except OSError:
            return None
        else:
            if _lock(fd, lock):
                return fd
            os.close(fd)
        time.sleep(LOCK_STEP_S)
    raise StoreError(f"{path}: another process has locked the quota file ({lock.name}): try again")


def _lock(fd: int, lock: Path) -> bool:
    """Lock the file with this descriptor; return False if another process has locked it, or has removed it
    meanwhile.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system may have no locks
        return True
    try:
        return os.path.samestat(os.fstat(fd), lock.stat())
    except OSError:
        return False


def _load(path: Path) -> QuotaFileContent:
    try:
        return _read(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read the quota file: {error.strerror}") from None
    except QuotaFileError as error:
        raise ConfigError(f"{path}: {error}") from None


def _read(path: Path) -> QuotaFileContent:
    """Read the quota file. Raises OSError, QuotaFileError."""
    seen = stamp(path)
    content = read_bytes(path, QUOTAS_BYTES_MAX)
    text = text_of(content, path)
    entries = read(text)
    mark = content[: len(content) - len(text.encode())]
    return QuotaFileContent(table_of(entries), seen, QuotaText(text, entries.quotas, mark))


def _rewrite(
    path: Path,
    known: QuotaFileContent | None,
    edit: Callable[[QuotaFileContent], tuple[QuotaText, QuotaTable]],
) -> QuotaFileContent | None:
    """Try once to replace the content of the quota file, and return it. Return None if another process has
    written the file since it was read. Raises StoreError.
    """
    if path.is_symlink():
        raise StoreError(
            f"{path}: the quota file is a link, such as Kubernetes mounts: change what it is made from"
        )
    try:
        found = known if known is not None and known.seen == stamp(path) else _read(path)
    except OSError as error:
        raise StoreError(f"{path}: cannot read the quota file: {error.strerror}") from None
    except QuotaFileError as error:
        raise StoreError(f"{path}: not altered, correct it first: {error}") from None
    try:
        text, table = edit(found)
    except (QuotaFileError, UnicodeEncodeError) as error:
        raise StoreError(f"{path}: not altered: {error}") from None
    if not table.delta(found.table).number:
        return found
    try:
        written = replace(path, text.content, instead_of=found.text.content)
    except OSError as error:
        raise StoreError(f"{path}: cannot write the quota file: {error.strerror}") from None
    return None if written is None else QuotaFileContent(table, written, text)
