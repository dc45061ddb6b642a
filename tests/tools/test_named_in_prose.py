"""Pages name files, folders and modules that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import filter as matching
from pathlib import Path
from typing import Final

from tests.rooms import ROOMS
from tests.tools.compiled_only import ROOT

FOLDERS: Final = (*ROOMS, "bench", "deploy", "docs", "tests", "tools")
SUFFIXES: Final = ("py", "pyi", "toml", "md", "yml", "yaml", "json", "java", "svg", "txt", "service", "cnf")
_PATH: Final = re.compile(r"(?<![\w/.:~-])[\w.-]+(?:/[\w.*-]+)+/?")
_MODULE: Final = re.compile(r"python3? -m ([a-z_]+(?:\.[a-z_0-9]+)*)")
_LINK: Final = re.compile(r"\[[^\]]*\]\([^)]*\)")


def missing(text: str, files: set[str]) -> Iterator[str]:
    """Yield the paths and modules of a text whose first part is one of our folders, and that do not exist."""
    for path in _PATH.findall(_LINK.sub("", text)):
        path = path.rstrip(".,:")
        stem, _dot, suffix = path.rpartition("/")[2].rpartition(".")
        is_file = path.endswith("/") or (
            suffix in SUFFIXES and not stem.isupper()
        )  # else words: broker/client
        if path.split("/")[0] in FOLDERS and is_file and not matching(files, path.rstrip("/")):
            yield path
    for name in _MODULE.findall(text):
        module = name.removeprefix("weir.").replace(".", "/")
        if module.split("/")[0] in FOLDERS and not {f"{module}.py", module} & files:
            yield f"python -m {name}"


def test_pages_name_files_that_exist() -> None:
    paths = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    files = {path.relative_to(ROOT).as_posix() for path in paths} | set(FOLDERS)
    assert list(missing("`proxy/gone.py`, `python -m weir.proxy.gone`, `quotas/*.py`", files)) == [
        "proxy/gone.py",
        "python -m weir.proxy.gone",
    ]
    pages = [*ROOT.glob("*.md"), *(path for path in paths if path.suffix == ".md")]
    found = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in sorted(pages)
        for name in missing(Path(page).read_text("utf-8"), files)
    ]
    assert not found, "these do not exist:\n" + "\n".join(found)
