"""The quota file is read again when it has changed, not when its neighbours have."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import trio

from proxy import quota_watch
from proxy.quota_watch import follow, stamp

Step = Callable[[], object]


def reloads(monkeypatch: pytest.MonkeyPatch, path: Path, *steps: Step) -> list[bool]:
    """Whether the file was reloaded after each of these changes in its directory."""
    done: list[bool] = []

    async def awatch(*_paths: Path, **_options: object) -> AsyncIterator[set[object]]:
        for step in steps:
            step()
            done.append(False)
            yield set()

    async def reload() -> None:
        done[-1] = True

    monkeypatch.setattr(quota_watch, "awatch", awatch)
    trio.run(follow, path, stamp(path), reload, trio.Event())
    return done


def test_only_changes_of_the_quota_file_trigger_a_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other, new = tmp_path / "quotas.toml", tmp_path / "other", tmp_path / "new"
    path.write_text("a = 1\n")

    def touch() -> None:
        found = path.stat()
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + 1))

    def replace() -> None:
        new.write_text("a = 3\n")
        os.utime(new, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
        new.replace(path)

    steps: dict[str, tuple[Step, bool]] = {
        "a neighbour appears": (lambda: other.write_text("x"), False),
        "a neighbour changes": (lambda: other.write_text("y"), False),
        "another time of modification": (touch, True),
        "the same again": (lambda: None, False),
        "another size": (lambda: path.write_text("a = 22\n"), True),
        "another file in its place": (replace, True),
        "it is gone": (path.unlink, True),
        "and stays so": (lambda: other.write_text("z"), False),
        "it is back": (lambda: path.write_text("a = 1\n"), True),
    }
    done = reloads(monkeypatch, path, *(step for step, _ in steps.values()))
    assert dict(zip(steps, done, strict=True)) == {name: expected for name, (_, expected) in steps.items()}


def test_a_changed_symbolic_link_to_the_quota_file_triggers_a_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kubernetes updates a mounted ConfigMap."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "quotas.toml").write_text("a = 1\n")
    data, path = tmp_path / "data", tmp_path / "quotas.toml"
    data.symlink_to("one")
    path.symlink_to("data/quotas.toml")

    def swap() -> None:
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").replace(data)

    assert reloads(monkeypatch, path, swap) == [True]
