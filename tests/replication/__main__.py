"""`python -m tests.replication --seeds 0-5000`; `python -m tests.replication --seed 7 --shrink`."""

from __future__ import annotations

import argparse
import time

from tests.replication.script import generate
from tests.replication.shrink import shrink
from tests.replication.world import World, fault


def main() -> None:
    """Run seeds, print what fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.replication", description=__doc__)
    parser.add_argument("--seeds", metavar="FROM-TO", help="run these seeds; print the first that fail")
    parser.add_argument("--seed", type=int, help="run one seed")
    parser.add_argument("--shrink", action="store_true", help="make the failing scripts smaller")
    parser.add_argument("--trace", action="store_true", help="print the traceback of a failure")
    parser.add_argument("--failures", type=int, default=5, help="stop after so many failures")
    options = parser.parse_args()
    first, last = (
        (options.seed, options.seed) if options.seed is not None else map(int, options.seeds.split("-"))
    )
    began_s, failed, seed = time.process_time(), 0, first
    for seed in range(first, last + 1):
        script = generate(seed)
        reason = fault(script)
        if reason is None:
            continue
        print(f"seed {seed}: {reason}")
        if options.shrink:
            script = shrink(script, reason)
            print(script)
        if options.trace:
            World(script).execute()
        failed += 1
        if failed == options.failures:
            break
    seeds, spent_s = seed + 1 - first, time.process_time() - began_s
    print(f"{failed} of {seeds} seeds failed; {spent_s:.1f} s of CPU")
    raise SystemExit(failed > 0)


if __name__ == "__main__":
    main()
