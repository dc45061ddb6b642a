"""The product is imported as `weir.<room>`; the rooms are links in `weir/` to the folders beside it."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rooms import ROOMS
from tests.tools.compiled_only import ROOT


def test_each_room_is_a_link_in_the_package() -> None:
    links = {path.name: path.readlink().as_posix() for path in (ROOT / "weir").iterdir() if path.is_symlink()}
    assert links == {room: f"../{room}" for room in ROOMS}


@pytest.mark.parametrize("room", ROOMS)
def test_tests_cannot_import_a_room_by_its_bare_name(room: str) -> None:
    importlib.import_module(f"weir.{room}")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(room)


@pytest.mark.parametrize("text", ["../proxy", None])
def test_a_checkout_without_symbolic_links_cannot_be_installed(tmp_path: Path, text: str | None) -> None:
    """Git with `core.symlinks=false` writes the target of a link into a file."""
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "weir").mkdir()
    shutil.copy(ROOT / "weir" / "__init__.py", tmp_path / "weir")
    if text is not None:
        (tmp_path / "weir" / "proxy").write_text(text, "utf-8")
    done = subprocess.run(
        [sys.executable, "setup.py", "bdist_wheel"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "weir: not links to folders: " + ("proxy." if text else "none is there.") in done.stderr
    assert "core.symlinks true" in done.stderr
    assert "Traceback" not in done.stderr
