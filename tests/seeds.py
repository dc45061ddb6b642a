"""The command line of a seeded simulation: run seeds, print those that fail."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def arguments(prog: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser of the options that all simulations have."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--seeds", metavar="FROM-TO", help="run these seeds; print the first that fail")
    parser.add_argument("--seed", type=int, help="run one seed")
    parser.add_argument("--failures", type=int, default=5, help="stop after so many failures")
    return parser


def run(options: argparse.Namespace, fails: Callable[[int], bool]) -> None:
    """Run the seeds of the options, and exit with 1 if any fails. `fails` runs a seed; it prints the failure
    and returns True if there is one.
    """
    first, last = (
        (options.seed, options.seed) if options.seed is not None else map(int, options.seeds.split("-"))
    )
    began_s, failed, seed = time.process_time(), 0, first
    for seed in range(first, last + 1):
        failed += fails(seed)
        if failed == options.failures:
            break
    seeds, spent_s = seed + 1 - first, time.process_time() - began_s
    print(f"{failed} of {seeds} seeds failed; {spent_s:.1f} s of CPU")
    raise SystemExit(failed > 0)
