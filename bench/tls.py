"""Measure the cost of TLS in a proxy: clients speak TLS to the proxy, the proxy speaks plain TCP to the
broker. Lists the loads and targets that are measured with TLS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.rows import Row
from bench.targets import Target, haproxy, kroxylicious, weir, weir_compiled

ROW_NAMES: Final = ("metadata-1", "metadata-8x16", "produce-100b", "produce-500kb", "fetch-500kb")
TARGETS: Final[tuple[Target, ...]] = (
    haproxy.HAPROXY_TLS,
    kroxylicious.KROXYLICIOUS_TLS,
    replace(weir.WEIR, start=weir.over_tls(weir.WEIR.name, weir.THIS_TREE)),
    replace(
        weir_compiled.WEIR_COMPILED,
        start=weir.over_tls(weir_compiled.WEIR_COMPILED.name, weir_compiled.COMPILED),
    ),
)
"""Targets with TLS. Each has the name of its target without TLS, so that one name on the command line chooses
both.
"""


def rows(chosen: Sequence[Row]) -> list[Row]:
    """Return those of the chosen rows (loads) that are also measured with TLS."""
    return [row for row in chosen if row.name in ROW_NAMES]


def targets(chosen: Sequence[Target], trees: Sequence[Path]) -> list[Target]:
    """Return the targets with TLS: those of TARGETS that have the name of a chosen target, and the Weir of
    each checkout in `trees`.
    """
    names = {target.name for target in chosen}
    others = [weir.other_tree(tree) for tree in trees]
    return [target for target in TARGETS if target.name in names] + [
        replace(other, start=weir.over_tls(other.name, tree))
        for other, tree in zip(others, trees, strict=True)
    ]
