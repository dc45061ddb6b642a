"""`python -m tests.sim --seeds 0-5000`; `python -m tests.sim --seed 7 --shrink`."""

from __future__ import annotations

from tests import seeds
from tests.sim.shrink import shrink
from tests.sim.world import execute, simulate


def main() -> None:
    parser = seeds.arguments("python -m tests.sim", __doc__)
    parser.add_argument("--shrink", action="store_true", help="make the failing scripts smaller")
    options = parser.parse_args()

    def fails(seed: int) -> bool:
        failure = simulate(seed)
        if failure is None:
            return False
        if options.shrink:
            failure = shrink(failure, lambda script: execute(script))
        print(failure, end="\n\n")
        return True

    seeds.run(options, fails)


if __name__ == "__main__":
    main()
