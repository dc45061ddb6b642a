"""`python -m tests.replication --seeds 0-5000`; `python -m tests.replication --seed 7 --shrink`."""

from __future__ import annotations

from tests import seeds
from tests.replication.script import generate
from tests.replication.shrink import shrink
from tests.replication.world import World, fault


def main() -> None:
    parser = seeds.arguments("python -m tests.replication", __doc__)
    parser.add_argument("--trace", action="store_true", help="print the traceback of a failure")
    options = parser.parse_args()

    def fails(seed: int) -> bool:
        script = generate(seed)
        reason = fault(script)
        if reason is None:
            return False
        print(f"seed {seed}: {reason}")
        if options.shrink:
            script = shrink(script, reason)
            print(script)
        if options.trace:
            World(script).execute()
        return True

    seeds.run(options, fails)


if __name__ == "__main__":
    main()
