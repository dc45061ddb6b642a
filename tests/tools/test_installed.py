"""Weir as a package of others: what wheels contain, and what installing one leaves alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from tests.rooms import ROOMS, copy_sources
from tests.tools.compiled_only import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

NEIGHBOUR: Final = "proxy.py==2.4.10"
"""A package from PyPI with the top-level names `proxy` and `tests`."""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command without this process's PYTHONPATH and WEIR_COMPILE; return its standard output."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "WEIR_COMPILE")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def pip(*arguments: str | Path, cwd: Path) -> None:
    run(sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments, cwd=cwd)


def sources(folder: Path) -> set[str]:
    found = {f"weir/{path.relative_to(folder)}" for room in ROOMS for path in (folder / room).rglob("*.py")}
    return found | {"weir/__init__.py"}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_sources(tmp_path_factory.mktemp("checkout"))


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", "--wheel-dir", directory, checkout, cwd=directory)
    (found,) = directory.glob("*.whl")
    return found


def names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as file:
        return file.namelist()


def test_a_wheel_contains_the_files_of_the_page(wheel: Path) -> None:
    static = Path("proxy/admin/page/static")
    files = {f"weir/{static}/{file.name}" for file in (ROOT / static).iterdir()}
    assert len(files) > 5
    assert files <= set(names(wheel))


def test_a_wheel_contains_each_module_once_and_no_room_at_the_top_level(wheel: Path, checkout: Path) -> None:
    found = names(wheel)
    assert {name.partition("/")[0] for name in found} == {
        "weir",
        f"kafka_weir-{version('kafka-weir')}.dist-info",
    }
    assert sorted(name for name in found if name.endswith(".py")) == sorted(sources(checkout))
    with zipfile.ZipFile(wheel) as file:
        entry = file.read("weir/proxy/__init__.py")
    assert entry == (ROOT / "proxy" / "__init__.py").read_bytes()


def test_a_wheel_has_the_readme_as_its_description(wheel: Path) -> None:
    (metadata,) = [name for name in names(wheel) if name.endswith("dist-info/METADATA")]
    with zipfile.ZipFile(wheel) as file:
        head, _, description = file.read(metadata).decode().partition("\n\n")
    assert "\nDescription-Content-Type: text/markdown\n" in head
    assert description.startswith((ROOT / "README.md").read_text("utf-8").partition("\n")[0])


def test_a_source_distribution_makes_the_same_wheel_as_the_checkout(
    wheel: Path, checkout: Path, tmp_path: Path
) -> None:
    tools = tmp_path / "tools"
    pip("install", "--no-compile", "--target", tools, "setuptools>=77", cwd=tmp_path)
    sdist = ("setup.py", "--quiet", "sdist", "--dist-dir", tmp_path)
    run(sys.executable, *sdist, cwd=checkout, PYTHONPATH=str(tools))
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as file:
        inside = [path.partition("/")[2] for path in file.getnames()]
    assert {path.partition("/")[0] for path in inside} & set(ROOMS) == set()
    pip("wheel", "--no-deps", "--wheel-dir", tmp_path, archive, cwd=tmp_path)
    (again,) = tmp_path.glob("*.whl")
    assert sorted(names(again)) == sorted(names(wheel))


def test_weir_works_beside_the_package_proxy_py_and_a_folder_named_cli(wheel: Path, tmp_path: Path) -> None:
    """Both neighbours work too. Weir is installed last: once it overwrote the other's `proxy/__init__.py`."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv", cwd=tmp_path)
    programs = tmp_path / "venv" / "bin"
    there = ("--python", programs / "python")
    pip(*there, "install", "--no-compile", NEIGHBOUR, cwd=tmp_path)
    constraints = ("--constraint", ROOT / "constraints.txt")
    pip(*there, "install", "--no-compile", *constraints, wheel, cwd=tmp_path)
    (tmp_path / "path" / "cli").mkdir(parents=True)
    (tmp_path / "path" / "cli" / "__init__.py").write_text("NEIGHBOUR = 'at work'\n")
    search = str(tmp_path / "path")

    said = run(programs / "weir", "--version", cwd=tmp_path, PYTHONPATH=search)
    assert said.startswith(f"weir, version {version('kafka-weir')} (pure Python, ")
    quotas = tmp_path / "quotas.toml"
    quotas.write_text('[[quota]]\nuser = "alice"\nproducer_byte_rate = 1000\n')
    listed = run(programs / "weir", "quotas", "list", "--quotas", quotas, cwd=tmp_path, PYTHONPATH=search)
    assert "alice" in listed

    assert (
        run(programs / "proxy", "--version", cwd=tmp_path, PYTHONPATH=search).strip()
        == NEIGHBOUR.partition("==")[2]
    )
    script = "import cli, proxy; print(cli.NEIGHBOUR, callable(proxy.main))"
    assert run(programs / "python", "-c", script, cwd=tmp_path, PYTHONPATH=search).strip() == "at work True"
    pip(*there, "uninstall", "--yes", "kafka-weir", cwd=tmp_path)
    assert run(programs / "proxy", "--version", cwd=tmp_path, PYTHONPATH=search).strip()
