"""The examples in the docstrings and in docs/reference/quotas.md run."""

import ast
import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (ROOT / "weir" / "quotas").rglob("*.py")
    if ">>> " in path.read_text("utf-8")
)


def docstrings(module: ModuleType) -> Iterator[str]:
    """From the source: the functions of a compiled module have none."""
    directory = Path(str(module.__file__)).parent
    source = directory / f"{module.__name__.rpartition('.')[2]}.py"
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_of_the_quota_modules_run(name: str) -> None:
    module = importlib.import_module(name)
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for text in docstrings(module):
        runner.run(parser.get_doctest(text, dict(vars(module)), name, None, None))
    failed, attempted = runner.summarize()
    assert failed == 0
    assert attempted > 0


def test_examples_of_the_quota_page_run() -> None:
    page = ROOT / "docs" / "reference" / "quotas.md"
    failed, attempted = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert failed == 0
    assert attempted > 0
