"""Find the test modules that a change concerns, by the graph of imports.

A test module is concerned if it imports a changed module, directly or through others. Modules at the centre
are imported by every test, so the nearest test modules come first, and `MODULES_MAX` bounds their number: the
farther a test, the less likely is it to notice the change. `make fast` runs all.

Considered and left: selection by executed lines (pytest-testmon). It needs a complete run with coverage
first, slows each run, and does not see the processes that tests start.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import islice
from pathlib import PurePath
from typing import Final

import grimp

from tools.lanes.lane import ROOT, TESTS

MODULES_MAX: Final = 60
"""Maximum number of test modules beside those that are changed themselves."""
PRODUCT: Final = "weir"
_FOR_DEVELOPERS: Final = (TESTS.name, "bench", "tools")
"""Packages that are imported under their own names; others are rooms of `weir`."""
_LAZY: Final = re.compile(r'LazyCommand\(\s*"([\w.]+):')
"""Names of modules that are imported when a command is run."""
_OF_OTHER_LANES: Final = re.compile(
    r"^pytestmark = .*\bmark\.(broker|oracle|spark|alone|image|slow)\b", re.MULTILINE
)


def changed_paths() -> list[PurePath]:
    """Return the paths that differ from the last commit; if none does, those that the last commit changed."""
    uncommitted = _git("diff", "--name-only", "HEAD") + _git("ls-files", "--others", "--exclude-standard")
    return [PurePath(name) for name in uncommitted or _git("diff", "--name-only", "HEAD~1", "HEAD")]


def changed_lately(names: Iterable[str]) -> bool:
    """Return True if one of the last 100 commits, more than a session makes, changed one of these files."""
    return not set(_git("log", "-100", "--format=", "--name-only")).isdisjoint(names)


def _git(*arguments: str) -> list[str]:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def concerned(paths: Iterable[PurePath]) -> list[str]:
    """Return the paths of the test modules that these changed paths concern: the changed ones, then others,
    nearest first.
    """
    # The cache is import-linter's, which builds on the same library.
    graph = grimp.build_graph(PRODUCT, *_FOR_DEVELOPERS, cache_dir=str(ROOT / ".import_linter_cache"))
    for path in (ROOT / "cli").rglob("*.py"):
        importer = ".".join((PRODUCT, *path.relative_to(ROOT).with_suffix("").parts))
        for imported in _LAZY.findall(path.read_text("utf-8")):
            graph.add_import(importer=importer, imported=imported)
    tests = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): str(path.relative_to(ROOT))
        for path in TESTS.rglob("test_*.py")
        if not _OF_OTHER_LANES.search(path.read_text("utf-8"))
    }
    every = list(paths)
    own = [str(path) for path in every if str(path) in tests.values()]
    begin = {module for path in every for module in _modules(path, graph.modules, tests)}
    near = (tests[name] for name in _nearest_first(graph, begin) if name in tests)
    return [*own, *islice((path for path in near if path not in own), MODULES_MAX)]


def _modules(path: PurePath, known: AbstractSet[str], tests: dict[str, str]) -> AbstractSet[str]:
    """Return the modules that a changed path stands for.

    Data (schemas, pages, TOML) stands for the modules of the nearest folder that has any, a conftest.py for
    the tests of its folder, and any other file for the tests that name it.
    """
    root = () if path.parts[0] in _FOR_DEVELOPERS else (PRODUCT,)
    module = ".".join((*root, *path.with_suffix("").parts)).removesuffix(".__init__")
    if path.suffix == ".py" and module in known and path.stem != "conftest":
        return {module}
    parents = [".".join((*root, *parent.parts)) for parent in path.parents if parent.name]
    for parent in parents:
        if parent in known:
            return {
                name for name in known if name.startswith(f"{parent}.") and "." not in name[len(parent) + 1 :]
            }
    return {name for name, test in tests.items() if path.name in (ROOT / test).read_text("utf-8")}


def _nearest_first(graph: grimp.ImportGraph, begin: AbstractSet[str]) -> Iterator[str]:
    """Yield these modules, and then those that import them, by the number of imports between them; of as
    many imports first those whose folder has the name of a changed room.
    """
    seen, level = set(begin), begin
    rooms = {_room(name) for name in begin}
    while level:
        yield from sorted(level, key=lambda name: (_room(name) not in rooms, name))
        importing = {name for module in level for name in graph.find_modules_that_directly_import(module)}
        level = importing - seen
        seen |= importing


def _room(module: str) -> str:
    return module.partition(".")[2].partition(".")[0]
