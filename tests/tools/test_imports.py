"""Modules of tests import one another's helpers from helper modules, never from a test module."""

from __future__ import annotations

import re
from typing import Final

from tests.tools.compiled_only import ROOT

_IMPORT: Final = re.compile(r"^\s*(?:from|import)\b[^#\n]*[ .]test_\w+", re.MULTILINE)


def test_no_module_imports_a_test_module() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {statement.strip()}"
        for folder in ("tests", "bench", "tools")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for statement in _IMPORT.findall(path.read_text("utf-8"))
    ]
    assert not found, "move the helpers to a module without `test_`:\n" + "\n".join(found)
    assert _IMPORT.search("from tests.cli.test_run import refused")
    assert _IMPORT.search("    from tests.cli import test_run")
