"""A file in another's place, in one step. What becomes of a write that fails: `test_file_store`."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from weir.proxy.atomic_write import PRIVATE, replace
from weir.proxy.file_watch import stamp


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mode", [PRIVATE, 0o644])
def test_an_atomic_write_gives_a_new_file_the_mode_regardless_of_umask(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "new"
    assert replace(path, b"a", mode=mode) == stamp(path)
    assert (path.read_bytes(), mode_of(path)) == (b"a", mode)
    assert list(tmp_path.iterdir()) == [path]


def test_an_atomic_write_keeps_an_existing_files_mode(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"a")
    path.chmod(0o640)
    assert replace(path, b"b", mode=0o644) == stamp(path)
    assert (path.read_bytes(), mode_of(path)) == (b"b", 0o640)


def test_an_atomic_write_replaces_only_the_expected_content(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"a")
    assert replace(path, b"c", instead_of=b"b") is None
    assert path.read_bytes() == b"a"
    with pytest.raises(FileNotFoundError):
        replace(tmp_path / "gone", b"c", instead_of=b"b")
    assert list(tmp_path.iterdir()) == [path]
