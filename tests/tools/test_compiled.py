"""The optional compiled build: what it compiles, what mypyc gets wrong, what it says where it cannot work.

What the compiled modules do is tested by `make check-compiled`.
"""

from __future__ import annotations

import ast
import os
import runpy
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

import pytest

from tests.tools.compiled_only import ROOT, compiled_files

COMPILED: Final = compiled_files()
SETUP: Final = ROOT / "setup.py"
PACKAGES: Final = ("protocol/scanning", "quotas", "proxy/connection", "proxy/handlers", "proxy/net")
PURE: Final = {"len", "min", "max"}
"""May be called twice."""


def build(step: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run one step of a build, as a build backend does."""
    return subprocess.run(
        [sys.executable, str(SETUP), step],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def says_why_not(file: Path) -> bool:
    """True if a module, or a package that it is in, has a reason to stay interpreted."""
    packages = [
        folder / "__init__.py" for folder in file.parents if folder.is_relative_to(ROOT) and folder != ROOT
    ]
    return any("\n# mypyc: skip, because " in source.read_text("utf-8") for source in (file, *packages))


def calls_in_slices(source: str) -> list[str]:
    """Every call, but for pure ones, within the bounds of a slice."""
    bounds = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Slice)]
    inner = [node for bound in bounds for node in ast.walk(bound) if isinstance(node, ast.Call)]
    return [text for text in map(ast.unparse, inner) if text.partition("(")[0] not in PURE]


def test_every_module_of_the_compiled_packages_is_compiled_or_says_why_not() -> None:
    weir = ROOT / "weir"
    files = {file for package in PACKAGES for file in (weir / package).rglob("*.py")}
    files |= {weir / "protocol" / "errors.py", weir / "protocol" / "framing.py"}
    compiled = {ROOT / path for path in COMPILED}
    assert files - compiled == set(filter(says_why_not, files))
    assert weir / "proxy" / "connection" / "inbound.py" in compiled


def test_compiled_modules_call_nothing_in_slice_bounds() -> None:
    """mypyc 2.4 evaluates the bounds of a slice twice if it does not know the type: a `send` there sent
    twice.
    """
    assert calls_in_slices("a = b[sock.send(b) : len(b)]") == ["sock.send(b)"]
    found = {path: calls_in_slices((ROOT / path).read_text("utf-8")) for path in COMPILED}
    assert {path: calls for path, calls in found.items() if calls} == {}


def test_compiled_modules_define_no_msgspec_structs() -> None:
    """mypyc 2.4 drops the options of a struct: without `kw_only` Weir could not be imported."""
    assert [path for path in COMPILED if "(msgspec.Struct" in (ROOT / path).read_text("utf-8")] == []


def names_of_several_exceptions(source: str) -> list[str]:
    """Every name that a function gives to an exception and to something else: mypyc types it as the first."""
    found = []
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            named: dict[str, set[str]] = {}
            for node in ast.walk(function):
                if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                    named.setdefault(node.name, set()).add(ast.unparse(node.type))
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in named:
                    named[node.id].add("a value")
            found += [f"{function.name}: {name}" for name, types in named.items() if len(types) > 1]
    return found


def test_compiled_functions_name_exceptions_of_one_type_only() -> None:
    """The second type raises TypeError instead: each malformed request was an internal error."""
    source = "def f():\n try: e = g()\n except KeyError as e: h(e)\n"
    assert names_of_several_exceptions(source) == ["f: e"]
    found = {path: names_of_several_exceptions((ROOT / path).read_text("utf-8")) for path in COMPILED}
    assert {path: names for path, names in found.items() if names} == {}


def test_no_compiled_module_lies_beside_its_source() -> None:
    folders = {(ROOT / path).parent for path in COMPILED}
    assert folders
    files = [path for folder in folders for path in folder.iterdir()]
    found = [path for path in files if path.name.endswith(tuple(EXTENSION_SUFFIXES))]
    assert found == [], "they would be imported instead of the sources"


def test_a_compiled_build_without_a_compiler_explains_the_remedy() -> None:
    done = build("bdist_wheel", WEIR_COMPILE="1", CC="/no/such/compiler")
    assert done.returncode != 0
    assert "WEIR_COMPILE=1 needs a C compiler" in done.stderr
    assert "/no/such/compiler" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_editable_install_stays_pure() -> None:
    done = build("editable_wheel", WEIR_COMPILE="1")
    assert done.returncode != 0
    assert "stays pure" in done.stderr


@pytest.mark.parametrize("value", ["", "0"])
def test_modules_are_compiled_only_on_request(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("WEIR_COMPILE", value)
    assert runpy.run_path(str(SETUP))["WANTED"] is False
