"""Weir with its data path compiled by `make compiled`; measured if the compiled modules exist and are up to
date.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from bench.targets import weir
from bench.targets.target import Target

COMPILED: Final = weir.THIS_TREE / "build" / "compiled"
_ROOMS: Final = ("protocol", "quotas", "proxy")


def _missing() -> str | None:
    if not any(COMPILED.glob("weir__mypyc.*")):
        return "no build/compiled (make compiled)"
    for room in _ROOMS:
        for source in (weir.THIS_TREE / room).rglob("*.py"):
            path = source.relative_to(weir.THIS_TREE)
            built_from = COMPILED / "weir" / path
            if not built_from.exists() or built_from.read_bytes() != source.read_bytes():
                return f"build/compiled is not of the present {path} (make compiled)"
    return None


WEIR_COMPILED: Final[Target] = replace(
    weir.other_tree(COMPILED), name="weir-compiled", title="Weir, compiled, quotas on", missing=_missing
)
