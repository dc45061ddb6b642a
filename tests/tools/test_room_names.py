"""The product is imported as `weir.<room>`; the rooms are links in `weir/` to the folders beside it."""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.rooms import ROOMS
from tests.tools.compiled_only import ROOT

_DOTTED = re.compile(rf"""(["'])(({"|".join(ROOMS)})\.(\w+)(\.\w+)*)\1""")


def bare_names(source: str) -> list[str]:
    """Each string that names a module, or something in it, without `weir.`: the target of a patch, which no
    linter sees.
    """
    return [
        found[2]
        for found in _DOTTED.finditer(source)
        if (ROOT / found[3] / found[4]).is_dir() or (ROOT / found[3] / f"{found[4]}.py").exists()
    ]


def test_each_room_is_a_link_in_the_package() -> None:
    links = {path.name: path.readlink().as_posix() for path in (ROOT / "weir").iterdir() if path.is_symlink()}
    assert links == {room: f"../{room}" for room in ROOMS}


@pytest.mark.parametrize("room", ROOMS)
def test_tests_cannot_import_a_room_by_its_bare_name(room: str) -> None:
    importlib.import_module(f"weir.{room}")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(room)


def test_no_string_names_a_module_without_the_package() -> None:
    room = ROOMS[-1]  # put together, so that the test does not find this one
    source = f'patch("{room}.records.Record")\nread("{room}.toml")\npatch("weir.{room}.records")\n'
    assert bare_names(source) == [f"{room}.records.Record"]
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in (*ROOMS, "bench", "tests", "tools")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in bare_names(path.read_text("utf-8"))
    ]
    assert not found, "write weir.… instead:\n" + "\n".join(found)


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
