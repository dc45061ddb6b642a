"""`python -m tests.replication --seeds 0-5000`; `python -m tests.replication --seed 7`."""

from __future__ import annotations

from tests import seeds
from tests.replication.script import generate
from tests.replication.world import fault


def main() -> None:
    def fails(seed: int) -> bool:
        script = generate(seed)
        reason = fault(script)
        if reason is not None:
            print(f"seed {seed}: {reason}\n{script}")
        return reason is not None

    seeds.run(seeds.arguments("python -m tests.replication", __doc__).parse_args(), fails)


if __name__ == "__main__":
    main()
