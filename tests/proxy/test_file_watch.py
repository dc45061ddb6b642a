"""Files count as changed when they are others than those that were read, and the same for two looks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from weir.proxy import file_watch
from weir.proxy import run as proxy_run
from weir.proxy.config import config
from weir.proxy.file_watch import FileWatch


def watch_of(*paths: Path) -> FileWatch:
    watch = FileWatch(paths)
    watch.read = watch.stamps()
    return watch


def changes_after(watch: FileWatch, change: Callable[[], object]) -> list[bool]:
    """What three looks after a change say; then the files are read."""
    change()
    looks = [watch.has_changed() for _ in range(3)]
    watch.read = watch.stamps()
    return looks


def test_only_settled_changes_of_the_watched_file_count(tmp_path: Path) -> None:
    path, other, new = tmp_path / "quotas.toml", tmp_path / "other", tmp_path / "new"
    path.write_text("a = 1\n")
    watch = watch_of(path)

    def touch() -> None:
        found = path.stat()
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1))

    def replace() -> None:
        new.write_text("a = 3\n")
        os.utime(new, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
        new.replace(path)

    nothing, changed = [False, False, False], [False, True, True]
    steps: dict[str, tuple[Callable[[], object], list[bool]]] = {
        "a neighbour appears": (lambda: other.write_text("x"), nothing),
        "a neighbour changes": (lambda: other.write_text("y"), nothing),
        "another time of modification": (touch, changed),
        "the same again": (lambda: None, nothing),
        "another size": (lambda: path.write_text("a = 22\n"), changed),
        "another file in its place": (replace, changed),
        "it is gone": (path.unlink, changed),
        "and stays so": (lambda: other.write_text("z"), nothing),
        "it is back": (lambda: path.write_text("a = 1\n"), changed),
    }
    done = {name: changes_after(watch, change) for name, (change, _) in steps.items()}
    assert done == {name: expected for name, (_, expected) in steps.items()}


def test_a_swapped_link_in_the_path_is_a_change_of_the_file(tmp_path: Path) -> None:
    """As Kubernetes updates a mounted ConfigMap or Secret."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "quotas.toml").write_text("a = 1\n")
    data, path = tmp_path / "data", tmp_path / "quotas.toml"
    data.symlink_to("one")
    path.symlink_to("data/quotas.toml")

    def swap() -> None:
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").replace(data)

    assert changes_after(watch_of(path), swap) == [False, True, True]


def test_files_that_change_one_after_another_count_once_all_are_settled(tmp_path: Path) -> None:
    cert, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    for path in (cert, key):
        path.write_text("old")
    watch = watch_of(cert, key)
    cert.write_text("newer")
    assert not watch.has_changed()
    key.write_text("newer")
    assert not watch.has_changed()
    assert watch.has_changed()


def test_a_change_that_is_undone_before_it_settles_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / "quotas.toml"
    path.write_text("a = 1\n")
    watch, before = watch_of(path), path.stat()
    path.write_text("a = 22\n")
    assert not watch.has_changed()
    path.write_text("a = 1\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [watch.has_changed() for _ in range(3)] == [False, False, False]


def test_weir_serves_and_stops_while_a_look_at_its_quota_file_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at a file system on a network that is away."""
    quotas = tmp_path / "quotas.toml"
    quotas.write_text("")
    looking, back = threading.Event(), threading.Event()

    def hang(_watch: FileWatch) -> bool:
        looking.set()
        return back.wait(60) and False

    async def unreachable(*_args: object) -> None:
        with trio.fail_after(20):
            while not looking.is_set():  # noqa: ASYNC110  # it is set by a thread
                await trio.sleep(0.001)
        raise config.ConfigError("the loop goes on")

    monkeypatch.setattr(FileWatch, "has_changed", hang)
    monkeypatch.setattr(file_watch, "LOOK_S", 0)
    monkeypatch.setattr("weir.proxy.control.cluster.discovery.first_brokers", unreachable)
    with pytest.raises(config.ConfigError, match="the loop goes on"):
        proxy_run.run(config.load(None, {"upstream": "127.0.0.1:1", "quotas": str(quotas)}))
    back.set()
