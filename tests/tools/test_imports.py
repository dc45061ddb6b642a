"""Modules of tests import one another's helpers from helper modules, never from a test module."""

from __future__ import annotations

import ast

import pytest

from tests.tools.compiled_only import ROOT


def imported_test_modules(source: str) -> list[tuple[int, str]]:
    """The line and the name of each test module that a module imports."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            is_test_module = module.rpartition(".")[2].startswith("test_")
            names = [module] if is_test_module else [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        found += [(node.lineno, name) for name in names if name.rpartition(".")[2].startswith("test_")]
    return found


@pytest.mark.parametrize(
    ("statement", "module"),
    [
        ("import tests.cli.test_run", "tests.cli.test_run"),
        ("import tests.cli.test_run as run", "tests.cli.test_run"),
        ("from tests.cli import test_run", "tests.cli.test_run"),
        ("from tests.cli.test_run import refused", "tests.cli.test_run"),
        ("from .test_run import refused", ".test_run"),
        ("from . import test_run", "..test_run"),
    ],
)
def test_every_form_of_importing_a_test_module_is_found(statement: str, module: str) -> None:
    source = f"if TYPE_CHECKING:\n    {statement}\n    import tests.cli.run_command\n"
    assert imported_test_modules(source) == [(2, module)]


def test_no_module_imports_a_test_module() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for folder in ("tests", "bench", "tools")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, module in imported_test_modules(path.read_text("utf-8"))
    ]
    assert not found, "move the helpers to a module without `test_`:\n" + "\n".join(found)
