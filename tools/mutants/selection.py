"""Select the tests that can notice a changed line: those that run the line."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from coverage import CoverageData

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

SECONDS_MAX: Final = 60.0
"""Maximum measured time (s) of the tests of one mutant; the quickest tests are chosen, at least one."""
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(slots=True)
class Measured:
    """The measurement: the tests that ran each line, and the time (s) that each test took."""

    tests: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    """Tests by path of the module, then by line."""
    seconds: dict[str, float] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    """Tests that fail without any mutation, and therefore are not used."""

    @classmethod
    def read(cls, directory: Path) -> Measured:
        """Read a measurement from a directory: the tests that ran each line (`*.coverage`), and the time or
        the failure of each test (`*.json`).
        """
        measured = cls()
        for file in directory.glob("*.coverage"):
            data = CoverageData(str(file))
            data.read()
            for name in data.measured_files():
                lines = measured.tests.setdefault(name, defaultdict(set))
                for line, contexts in data.contexts_by_lineno(name).items():
                    lines[line].update(filter(None, contexts))
        for file in directory.glob("*.json"):
            for test, seconds in json.loads(file.read_text("utf-8")).items():
                if seconds is None:
                    measured.failed.add(test)
                else:
                    measured.seconds[test] = seconds
        return measured

    def running(self, path: str, lines: Iterable[int]) -> set[str]:
        """Return the tests that ran any of these lines of the module, without the tests that fail without any
        mutation.
        """
        known = self.tests.get(path, {})
        return {test for line in lines for test in known.get(line, ())} - self.failed

    def of_files(self, files: Iterable[str]) -> set[str]:
        """Return all measured tests that are defined in these test files."""
        wanted = set(files)
        return {test for test in self.seconds if test.partition("::")[0] in wanted}


def covering_tests(
    path: str, line: int, sources: Mapping[str, str], tests: Mapping[str, str], measured: Measured
) -> list[str]:
    """Return the tests that may detect a change of this line, quickest first.

    A line within a function is covered by the tests that ran it. A line that runs on import belongs to no
    test; then the result is:

    - for the first lines of a function (`def`, decorators): the tests that ran any line of the function;
    - for other statements: the tests that ran a line in `sources` that mentions a name which the statement
      assigns, and all tests in the files of `tests` that mention such a name;
    - if neither finds a test: all tests that ran any line of the module.
    """
    statement, in_function = _statement(ast.parse(sources[path]), line)
    found: set[str] = set()
    if in_function:
        found = measured.running(path, _head(statement))
    elif isinstance(statement, _FUNCTIONS):
        found = measured.running(path, range(statement.lineno, (statement.end_lineno or 0) + 1))
    else:
        for name in _defined(statement):
            for other, source in sources.items():
                found |= measured.running(other, _mentioning(name, source))
            found |= measured.of_files(file for file, source in tests.items() if _mentioning(name, source))
        found = found or measured.running(path, measured.tests.get(path, ()))
    return _affordable(found, measured.seconds)


def _statement(tree: ast.Module, line: int) -> tuple[ast.stmt, bool]:
    """Return the innermost statement that contains the line, and True if it runs within a function."""
    found, in_function = tree.body[0], False
    for node in ast.walk(tree):  # outer statements come first
        if isinstance(node, ast.stmt) and _start(node) <= line <= (node.end_lineno or node.lineno):
            in_function = in_function or isinstance(found, _FUNCTIONS)
            found = node
    return found, in_function


def _start(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _head(statement: ast.stmt) -> range:
    """Return the lines of a compound statement before its body, or all lines of a simple statement."""
    body = getattr(statement, "body", None)
    end = body[0].lineno if body else (statement.end_lineno or statement.lineno) + 1
    return range(statement.lineno, max(end, statement.lineno + 1))


def _defined(statement: ast.stmt) -> list[str]:
    names = [node for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return [node.id for node in names if isinstance(node.ctx, ast.Store)]


def _mentioning(name: str, source: str) -> list[int]:
    pattern = re.compile(rf"\b{re.escape(name)}\b")
    return [number for number, text in enumerate(source.splitlines(), 1) if pattern.search(text)]


def _affordable(tests: Iterable[str], seconds: Mapping[str, float]) -> list[str]:
    chosen: list[str] = []
    left = SECONDS_MAX
    for test in sorted(tests, key=lambda test: (seconds.get(test, 0.0), test)):
        left -= seconds.get(test, 0.0)
        if left < 0 and chosen:
            break
        chosen.append(test)
    return chosen
