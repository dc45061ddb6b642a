"""Which test modules run on compiled modules: those that import one, directly or through other modules.

`python -m tests.tools.compiled_paths` prints their paths, for `make check-compiled`.

Imports are read from the sources. They are followed through helpers of tests, through the `conftest.py` of
the tests' directories, and through other modules of Weir. Imports of constants and exceptions are not
followed: nearly every module needs those of `protocol.errors` and `protocol.framing`, and runs no compiled
code by that.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.tools.compiled_only import ROOT, compiled_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOMS: Final = ("protocol", "quotas", "usage", "calibration", "proxy", "cli")
TESTED: Final = ("protocol", "quotas", "usage", "calibration", "proxy", "cli")
"""The directories below `tests/` that are looked at. Others test what surrounds Weir, or need brokers."""


ABOUT: Final = {"protocol.errors": "tests/protocol/test_api.py"}
"""For compiled modules that have nothing but exceptions: the test module about them."""


@cache
def compiled_paths() -> list[str]:
    """The test modules that run compiled code, relative to the repository."""
    return [path for path in map(_path, _test_files()) if modules_run_by(path)]


def modules_run_by(path: str) -> set[str]:
    """The compiled modules whose code a test module runs."""
    about = {module for module, test_module in ABOUT.items() if test_module == path}
    return about | _reached(_module(ROOT / path)) & set(compiled_modules())


def _path(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def _test_files() -> list[Path]:
    return sorted(file for room in TESTED for file in (ROOT / "tests" / room).rglob("test_*.py"))


def _module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


@cache
def _file(module: str) -> Path | None:
    """The source of a module of Weir's or of its tests; None for any other."""
    if module.partition(".")[0] not in (*ROOMS, "tests"):
        return None
    path = ROOT.joinpath(*module.split("."))
    found = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in found if file.is_file()), None)


@cache
def _reached(module: str) -> frozenset[str]:
    """All modules that a test module imports, and those that these import."""
    reached: set[str] = set()
    ahead = [module, *_conftests(module)]
    while ahead:
        current = ahead.pop()
        if current not in reached:
            reached.add(current)
            ahead += _imported(current)
    return frozenset(reached)


def _conftests(module: str) -> list[str]:
    parents = module.split(".")[:-1]
    names = (".".join([*parents[:count], "conftest"]) for count in range(1, len(parents) + 1))
    return [name for name in names if _file(name) is not None]


@cache
def _imported(module: str) -> frozenset[str]:
    """The modules of Weir's and of its tests from which a module imports functions or classes."""
    file = _file(module)
    if file is None:
        return frozenset()
    found: set[str] = set()
    for node in _run(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {_defining(node.module, alias.name) for alias in node.names if _is_code(alias.name)}
    return frozenset(name for name in found if _file(name) is not None)


def _defining(module: str, name: str) -> str:
    """The module that `from module import name` imports: a submodule, or the module itself."""
    below = f"{module}.{name}"
    return module if _file(below) is None else below


def _is_code(name: str) -> bool:
    return not name.isupper() and not name.endswith("Error")


def _run(tree: ast.AST) -> Iterator[ast.AST]:
    """The statements that are run, imports for type checkers left out."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr) or _for_type_checkers(node):
            continue
        yield node
        yield from _run(node)


def _for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


if __name__ == "__main__":
    print("\n".join(compiled_paths()))
