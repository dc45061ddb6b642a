"""Find files, modules and names that Markdown pages and docstrings mention, but the tree lacks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from fnmatch import fnmatch
from os.path import normpath
from pathlib import Path
from typing import Final, NamedTuple

SUFFIXES: Final = ("py", "pyi", "toml", "md", "yml", "yaml", "json", "java", "svg", "txt", "service", "cnf")
_FENCED: Final = re.compile(r"^( *)```.*?^\1```", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`([^`\n]+)`")
_PATH: Final = re.compile(r"(?<![\w/.:~-])[\w.-]+(?:/[\w.*-]+)+/?")
_MODULE: Final = re.compile(r"python3? -m ([a-z_]+(?:\.[a-z_0-9]+)*)")
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)#:\s]+)(?:#[^)]*)?\)")
_SOURCE: Final = re.compile(r"[\w*-][\w/*-]*\.pyi?")
_NAME: Final = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?:\(.*\))?")


class Mention(NamedTuple):
    """Something that prose names."""

    line: int
    text: str


class Tree:
    """The files of the repository, as paths from its root."""

    def __init__(self, paths: list[str]) -> None:
        """Keep the paths, and their folders."""
        self.paths = paths
        self.all = {*paths, *(str(parent) for path in paths for parent in Path(path).parents)}
        self.tops = {Path(path).parts[0] for path in self.all if "/" in path}

    def has(self, path: str) -> bool:
        """Return True if a path, which may have wildcards, exists."""
        path = path.rstrip("/")
        return path in self.all or ("*" in path and any(fnmatch(one, path) for one in self.all))

    def has_source(self, name: str) -> bool:
        """Return True if a file has this name, or ends with these folders and this name."""
        return any(fnmatch(one, name) or fnmatch(one, f"*/{name}") for one in self.paths)

    def has_module(self, name: str) -> bool:
        """Return True if a dotted name is a module or package."""
        path = name.removeprefix("weir.").replace(".", "/")
        return f"{path}.py" in self.all or path in self.all


def missing_files(text: str, page: str, tree: Tree) -> list[Mention]:
    """Return the files, folders and modules that a page names, also in commands, and the pages that it links
    to, if they do not exist.
    """
    return sorted({*_links(text, page, tree), *_paths(_LINK.sub("", text), tree)})


def _links(text: str, page: str, tree: Tree) -> Iterator[Mention]:
    for match in _LINK.finditer(text):
        if not tree.has(normpath(Path(page).parent / match[1])):
            yield _mention(text, match, match[1])


def _paths(text: str, tree: Tree) -> Iterator[Mention]:
    for match in _PATH.finditer(text):
        path = match[0].rstrip(".,:")
        if path.split("/")[0] in tree.tops and _is_ours(path) and not tree.has(path):
            yield _mention(text, match, path)
    for match in _MODULE.finditer(text):
        if match[1].removeprefix("weir.").split(".")[0] in tree.tops and not tree.has_module(match[1]):
            yield _mention(text, match, match[0])
    text = _FENCED.sub(_blank, text)
    for match in _CODE.finditer(text):
        if _SOURCE.fullmatch(match[1]) and not tree.has_source(match[1]):
            yield _mention(text, match, match[1])


def missing_names(text: str, known: set[str]) -> Iterator[Mention]:
    """Yield the names in backticks, dotted or called, whose last part nothing known is called."""
    text = _FENCED.sub(_blank, text)
    for match in _CODE.finditer(text):
        found = _NAME.fullmatch(match[1])
        if found is not None and found[1].rpartition(".")[2] not in known:
            yield _mention(text, match, match[1])


def names_in(source: str) -> set[str]:
    """Return all names that a Python module uses or defines, and its strings of one word: settings, keys."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        for field in ("id", "attr", "arg", "name"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                names.add(name)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            names.add(node.value)
    return names


def _is_ours(path: str) -> bool:
    """Return True unless a path is a pair of words ("broker/client"), or has a placeholder ("TIME.json")."""
    stem, _dot, suffix = path.rpartition("/")[2].rpartition(".")
    return path.endswith("/") or (suffix in SUFFIXES and not stem.isupper())


def _mention(text: str, match: re.Match[str], found: str) -> Mention:
    return Mention(text.count("\n", 0, match.start()) + 1, found)


def _blank(code: re.Match[str]) -> str:
    return "\n" * code[0].count("\n")
