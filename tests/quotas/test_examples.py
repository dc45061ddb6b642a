"""The examples in the docstrings and in docs/quotas.md run."""

import ast
import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

MODULES = [
    "explain",
    "limiters.bucket",
    "limiters.rate",
    "limiters.smooth",
    "limiters.throttle",
    "limits",
    "mutations",
    "names",
    "quota_edit",
    "quota_entry",
    "quota_file",
    "topics",
]


def docstrings(module: ModuleType) -> Iterator[str]:
    """From the source: the functions of a compiled module have none."""
    directory = Path(str(module.__file__)).parent
    source = directory / f"{module.__name__.rpartition('.')[2]}.py"
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_of_the_quota_modules_run(name: str) -> None:
    module = importlib.import_module(f"quotas.{name}")
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for text in docstrings(module):
        runner.run(parser.get_doctest(text, dict(vars(module)), name, None, None))
    failed, attempted = runner.summarize()
    assert failed == 0
    assert attempted > 0


def test_examples_of_the_quota_page_run() -> None:
    page = Path(__file__).parents[2] / "docs" / "quotas.md"
    failed, attempted = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert failed == 0
    assert attempted > 0
