"""Pages and docstrings of packages name files, modules and names that exist."""

from __future__ import annotations

import ast
from typing import Final

import pytest

from tests.rooms import ROOMS
from tests.tools.compiled_only import ROOT
from tests.tools.named_in_prose import Tree, missing_files, missing_names, names_in

FOLDERS: Final = (*ROOMS, "bench", "deploy", "docs", "tests", "tools")
OTHERS: Final = {
    "applyInPandas": "PySpark",
    "ssl": "Python",
}
"""Name → its owner, if it is not ours."""


def tree() -> Tree:
    """The files below the folders of the project, and those beside them."""
    files = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in FOLDERS:
        files += [path for path in (ROOT / folder).rglob("*") if path.is_file()]
    return Tree([path.relative_to(ROOT).as_posix() for path in files if "__pycache__" not in path.parts])


def known() -> set[str]:
    """All names in the product, its modules and packages."""
    names = set(OTHERS)
    for folder in ROOMS:
        for path in (ROOT / folder).rglob("*.py"):
            names |= names_in(path.read_text("utf-8")) | {path.stem, path.parent.name}
    return names | {"__init__", "tests", "tools", "weir"}


def test_pages_name_files_that_exist() -> None:
    files = tree()
    found = [
        f"{page}:{line}: {text}"
        for page in sorted(path for path in files.paths if path.endswith(".md") and path != "CHANGELOG.md")
        for line, text in missing_files((ROOT / page).read_text("utf-8"), page, files)
    ]
    assert not found, "these do not exist:\n" + "\n".join(found)


def test_the_architecture_page_uses_names_of_the_code() -> None:
    page = (ROOT / "docs" / "background" / "architecture.md").read_text("utf-8")
    found = [f"{line}: {text}" for line, text in missing_names(page, known()) if not text.endswith(".py")]
    assert not found, "no module of the product has these names:\n" + "\n".join(found)


def test_docstrings_of_packages_use_names_of_the_code() -> None:
    """They are where a newcomer begins: a module that has moved must not stay named there."""
    names, files = known(), tree()
    found = []
    for path in (path for path in files.paths if path.endswith("/__init__.py") and path.startswith(ROOMS)):
        text = ast.get_docstring(ast.parse((ROOT / path).read_text("utf-8"))) or ""
        found += [f"{path}: {name}" for _line, name in missing_names(text, names)]
        found += [f"{path}: {name}" for _line, name in missing_files(text, path, files)]
    assert not found, "these do not exist:\n" + "\n".join(found)


def test_packages_say_what_they_are_for() -> None:
    packages = [path for folder in ROOMS for path in (ROOT / folder).rglob("__init__.py")]
    assert not [str(path) for path in packages if not ast.get_docstring(ast.parse(path.read_text("utf-8")))]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("`proxy/gone.py`", ["proxy/gone.py"]),
        ("`proxy/here.py`, `here.py`, `proxy/`, proxy/connection", []),
        ("`gone.py`", ["gone.py"]),
        ("```\npytest proxy/gone.py\n```", ["proxy/gone.py"]),
        ("`python -m weir.proxy.gone`", ["python -m weir.proxy.gone"]),
        ("`python -m weir.proxy.here --option`, `python -m pip`", []),
        ("[here](here.md), [gone](gone.md#part)", ["gone.md"]),
        ("`proxy/results/TIME.json`, `config/users/alice.json`, `/etc/proxy/gone.py`", []),
        ("`proxy/h*.py`", []),
    ],
)
def test_missing_files_are_found(text: str, missing: list[str]) -> None:
    files = Tree(["proxy/here.py", "docs/here.md"])
    assert [found.text for found in missing_files(text, "docs/page.md", files)] == missing


def test_missing_names_are_found() -> None:
    page = "`Plan.admit`\n\n`Gone`, `Plan.gone`, `admit(Plan)`, `a sentence`\n\n```\ngone\n```\n"
    found = list(missing_names(page, names_in("class Plan:\n    admit: int\n")))
    assert found == [(3, "Gone"), (3, "Plan.gone")]
