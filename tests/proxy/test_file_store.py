"""The quota file as a store: written in one step, by nobody else's edit lost, read again only when needed."""

from __future__ import annotations

import errno
import fcntl
import os
import pathlib
import stat
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NoReturn

import pytest
import trio
import trio.testing

from tests.proxy.following import Followed, until
from tests.proxy.throttles import BROKER_1, THROTTLES
from weir.proxy import atomic_write, file_watch
from weir.proxy.control.stores import file as file_module
from weir.proxy.control.stores.file import FileStore, read_quota_file, rewrite, rewrite_replication
from weir.proxy.control.stores.store import StoreError
from weir.quotas import DEFAULT, Entity, QuotaKey, QuotaTable
from weir.quotas.table import quota_text
from weir.quotas.table.quota_edit import edited

PRODUCE: Final = QuotaKey.PRODUCER_BYTE_RATE
FETCH: Final = QuotaKey.CONSUMER_BYTE_RATE
ALICE: Final = Entity(user="alice")
TEXT: Final = """\
# ours

[[quota]]
user = "alice"  # batch jobs
producer_byte_rate = 1_000
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A quota file, alone in its directory."""
    directory = tmp_path / "etc"
    directory.mkdir()
    found = directory / "quotas.toml"
    found.write_text(TEXT)
    return found


def alone(path: Path) -> bool:
    return [found.name for found in path.parent.iterdir()] == [path.name]


def test_the_file_store_writes_a_change_and_keeps_all_other_text(path: Path) -> None:
    changes = {(ALICE, PRODUCE): 2000.0, (Entity(user=DEFAULT), FETCH): 5.0}
    table = rewrite(path, changes).table
    assert table == QuotaTable(changes) == read_quota_file(path)
    written = path.read_text()
    assert written.startswith('# ours\n\n[[quota]]\nuser = "alice"  # batch jobs\nproducer_byte_rate = 2000')
    assert alone(path)


def test_the_file_store_writes_throttles_and_keeps_all_other_text(path: Path) -> None:
    table = rewrite_replication(path, dict(THROTTLES.values)).table
    assert table == QuotaTable({(ALICE, PRODUCE): 1000.0}, replication=THROTTLES) == read_quota_file(path)
    assert path.read_text().startswith(TEXT)
    before = path.stat()
    assert rewrite_replication(path, {BROKER_1: "10000000"}).table == table
    assert path.stat() == before
    rewrite_replication(path, dict.fromkeys(THROTTLES.values))
    assert path.read_text() == TEXT
    assert alone(path)


def test_the_file_store_keeps_the_files_permissions(path: Path) -> None:
    path.chmod(0o640)
    rewrite(path, {(ALICE, PRODUCE): 2.0})
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_the_file_store_applies_a_change_to_a_concurrent_edit(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaces: list[bool] = []

    def edit(*args: object, **kwargs: object) -> str:
        if not replaces:
            replaces.append(True)
            path.write_text(TEXT + "consumer_byte_rate = 7\n")  # an operator saves
        return edited(*args, **kwargs)  # type: ignore[arg-type]  # as given

    monkeypatch.setattr(quota_text, "edited", edit)
    table = rewrite(path, {(ALICE, PRODUCE): 2.0}).table
    assert table == QuotaTable({(ALICE, PRODUCE): 2.0, (ALICE, FETCH): 7.0}) == read_quota_file(path)
    assert alone(path)


def test_the_file_store_gives_up_while_another_process_keeps_writing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[int] = []

    def edit(*args: object, **kwargs: object) -> str:
        times.append(1)
        path.write_text(f"{TEXT}consumer_byte_rate = {len(times)}\n")
        return edited(*args, **kwargs)  # type: ignore[arg-type]  # as given

    monkeypatch.setattr(quota_text, "edited", edit)
    with pytest.raises(StoreError, match="somebody else keeps writing"):
        rewrite(path, {(ALICE, PRODUCE): 2.0})
    assert path.read_text() == f"{TEXT}consumer_byte_rate = {len(times)}\n"
    assert alone(path)


def locked(path: Path) -> int:
    theirs = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(theirs, fcntl.LOCK_EX)
    return theirs


@pytest.mark.parametrize("removed", [True, False], ids=["ends in order", "is killed"])
def test_the_file_store_waits_for_another_process_with_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch, *, removed: bool
) -> None:
    theirs = locked(path)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 5:
            if removed:
                path.with_name(f".{path.name}.lock").unlink()
            os.close(theirs)

    monkeypatch.setattr(time, "sleep", wait)
    assert rewrite(path, {(ALICE, PRODUCE): 2.0}).table == QuotaTable({(ALICE, PRODUCE): 2.0})
    assert len(waits) == 5
    assert alone(path)


def test_a_process_that_may_only_read_the_directory_cannot_block_alterations(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: pytest.fail("the alteration waits"))
    theirs = os.open(path.parent, os.O_RDONLY)
    fcntl.flock(theirs, fcntl.LOCK_EX)
    modes: list[int] = []

    def edit(*args: object, **kwargs: object) -> str:
        modes.append(path.with_name(f".{path.name}.lock").stat().st_mode)
        return edited(*args, **kwargs)  # type: ignore[arg-type]  # as given

    monkeypatch.setattr(quota_text, "edited", edit)
    assert rewrite(path, {(ALICE, PRODUCE): 2.0}).table == QuotaTable({(ALICE, PRODUCE): 2.0})
    os.close(theirs)
    assert list(map(stat.S_IMODE, modes)) == [0o600]
    assert alone(path)


def test_alterations_at_the_same_time_are_all_made(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_module, "LOCK_STEP_S", 0.001)
    monkeypatch.setattr(file_module, "LOCK_TRIES", 100_000)
    changes = [{(Entity(user=f"user {number}"), PRODUCE): 1.0 + number} for number in range(40)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(partial(rewrite, path), changes))
    assert len(read_quota_file(path)) == 1 + len(changes)
    assert alone(path)


def test_the_file_store_reports_a_lock_that_is_never_released(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    theirs = locked(path)
    with pytest.raises(StoreError, match="another process has locked"):
        rewrite(path, {(ALICE, PRODUCE): 2.0})
    os.close(theirs)
    assert path.read_text() == TEXT


def test_the_file_store_works_on_a_file_system_without_locks(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> NoReturn:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert rewrite(path, {(ALICE, PRODUCE): 2.0}).table == QuotaTable({(ALICE, PRODUCE): 2.0})


def test_the_file_store_does_not_replace_a_symbolic_link(path: Path) -> None:
    """Kubernetes mounts a ConfigMap's files as links."""
    data = path.with_name("..data")
    path.rename(data)
    path.symlink_to(data.name)
    with pytest.raises(StoreError, match=r"quotas\.toml: the quota file is a link"):
        rewrite(path, {(ALICE, PRODUCE): 2.0})
    assert path.is_symlink()
    assert data.read_text() == TEXT


def test_the_file_store_does_not_alter_a_malformed_file(path: Path) -> None:
    for text, reason in (
        (
            '[[quota]]\nuser = "alice"\n',
            "quotas.toml: not altered, correct it first: .*line 1.*sets no quota",
        ),
        ("", "quotas.toml: not altered: a quota is for group"),
    ):
        path.write_text(text)
        with pytest.raises(StoreError, match=reason):
            rewrite(path, {(Entity(group="x"), PRODUCE): 2.0})
    path.write_bytes(b"# \xff\n")
    with pytest.raises(StoreError, match=r"quotas\.toml: cannot read the quota file: it is not UTF-8"):
        rewrite(path, {(ALICE, PRODUCE): 2.0})
    assert path.read_bytes() == b"# \xff\n"


def test_the_file_store_does_not_recreate_a_missing_file(path: Path) -> None:
    path.unlink()
    with pytest.raises(StoreError, match="cannot read the quota file: No such file"):
        rewrite(path, {(ALICE, PRODUCE): 2.0})
    assert not path.exists()


FAILURES: Final = {"mkstemp": errno.EROFS, "fsync": errno.ENOSPC, "replace": errno.EBUSY}


@pytest.mark.parametrize("step", FAILURES)
def test_a_failed_write_of_the_file_store_leaves_only_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_args: object, **_kwargs: object) -> NoReturn:
        raise OSError(FAILURES[step], os.strerror(FAILURES[step]))

    where: dict[str, object] = {"mkstemp": tempfile, "fsync": os, "replace": pathlib.Path}
    known = rewrite(path, {})
    monkeypatch.setattr(where[step], step, fail)
    with pytest.raises(StoreError, match=f"cannot write the quota file: {os.strerror(FAILURES[step])}"):
        rewrite(path, {(ALICE, PRODUCE): 2.0}, known)
    monkeypatch.undo()
    assert path.read_text() == TEXT
    assert alone(path)
    assert rewrite(path, {(ALICE, FETCH): 3.0}, known).table == read_quota_file(path)
    assert path.read_text() == f"{TEXT}consumer_byte_rate = 3\n"


def test_the_file_store_does_not_overwrite_an_edit_that_left_size_and_time_unchanged(path: Path) -> None:
    known, status = rewrite(path, {}), path.stat()
    path.write_text(TEXT.replace("1_000", "3_000"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    table = rewrite(path, {(ALICE, FETCH): 2.0}, known).table
    assert table == QuotaTable({(ALICE, PRODUCE): 3000.0, (ALICE, FETCH): 2.0}) == read_quota_file(path)


def test_a_file_store_without_a_file_is_empty_and_read_only() -> None:
    async def main() -> None:
        store = FileStore(None)
        assert store.start() == QuotaTable() == await store.load()
        with pytest.raises(StoreError, match="there is no quota file: start weir with --quotas FILE"):
            await store.alter({(ALICE, PRODUCE): 2.0})
        with pytest.raises(StoreError, match="there is no quota file: start weir with --quotas FILE"):
            await store.alter_replication({BROKER_1: "5"})
        followed = Followed()
        await store.follow(followed.changed, followed.failed)
        assert (followed.tables, followed.failures) == ([], [])

    trio.run(main)


# Under Trio


class Watched:
    """A store that is followed; the test says when to look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.store = FileStore(path)
        self.first = self.store.start()
        self.seen: list[QuotaTable | str] = []

    async def _changed(self, table: QuotaTable) -> None:
        self.seen.append(table)

    def write(self, text: str) -> None:
        """Somebody edits the file."""
        self._path.write_text(text)

    async def look(self) -> None:
        for _look in range(2):
            await self.store.look(self._changed, lambda error: self.seen.append(str(error)))


def test_the_file_store_reads_an_edit_right_after_its_change(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody replaces the file while its directory is still being made durable."""
    sync = atomic_write.sync_directory

    def edited_meanwhile(directory: Path) -> None:
        (directory / "edited").write_text(TEXT)
        (directory / "edited").replace(path)
        sync(directory)

    async def main() -> None:
        watched = Watched(path)
        monkeypatch.setattr(atomic_write, "sync_directory", edited_meanwhile)
        await watched.store.alter({(ALICE, PRODUCE): 2.0})
        await watched.look()
        assert watched.seen == [watched.first]

    trio.run(main)


def test_the_file_store_reports_a_mistake_and_its_correction_once(path: Path) -> None:
    async def main() -> None:
        watched = Watched(path)
        watched.write("user = 1\n")
        await watched.look()
        await watched.look()
        (mistake,) = watched.seen
        assert str(mistake).startswith(f"{path}: unknown key")
        with pytest.raises(StoreError, match="unknown key"):
            await watched.store.load()
        watched.write(TEXT)
        await watched.look()
        assert watched.seen == [mistake, watched.first]

    trio.run(main)


@pytest.mark.trio
async def test_a_changed_quota_file_is_followed(
    path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 2 * file_watch.LOOK_S <= 2, "the second look that sees a change comes within two seconds"
    monkeypatch.setattr(file_watch, "LOOK_S", 0)
    store, followed = FileStore(path), Followed()
    store.start()
    nursery.start_soon(store.follow, followed.changed, followed.failed)
    for tables, text in enumerate(("", TEXT), start=1):
        await trio.Path(path).write_text(text)
        await until(partial(followed.has_tables, tables))
    assert followed.tables == [QuotaTable(), read_quota_file(path)]
    assert followed.failures == []
    nursery.cancel_scope.cancel()
