"""Hypothesis, set up once for all tests: the same examples on every run, or new ones on each.

`repeatable` is the default: a failure is a failure for everyone. `exploring` (`make test-all`) draws new
examples, as many, from a seed that is printed, and keeps those that failed in `.hypothesis`.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Final

from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

REPEATABLE: Final = "repeatable"
EXPLORING: Final = "exploring"
EXAMPLES: Final = 38
"""Number of examples of a property that states no number."""
DATABASE: Final = Path(__file__).parents[1] / ".hypothesis" / "examples"
"""Examples that have failed in `exploring`."""
TOLERATED: Final = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much)
"""Machines are busy, and some of Kafka's messages are large. Hypothesis also draws constants of the
modules that are loaded, so the share of filtered examples depends on which tests run together.
"""


def register_profiles() -> None:
    """Register both profiles and load `repeatable`; `--hypothesis-profile` loads the other one."""
    # Properties differ by a factor of 1,000 in what an example costs, so there is no deadline.
    settings.register_profile(
        REPEATABLE,
        derandomize=True,
        deadline=None,
        database=None,
        max_examples=EXAMPLES,
        suppress_health_check=TOLERATED,
    )
    # Where CI is set, Hypothesis loads a profile of its own, which others inherit: so state all that matters.
    settings.register_profile(
        EXPLORING,
        derandomize=False,
        database=DirectoryBasedExampleDatabase(DATABASE),
        deadline=None,
        max_examples=EXAMPLES,
        print_blob=True,
        suppress_health_check=TOLERATED,
    )
    settings.load_profile(REPEATABLE)


def first_seed(drawn: int | None, part: int, count: int) -> int:
    """Return the first of `count` seeds of a simulation's part: the same each time, or if a seed was drawn,
    one that follows from that.
    """
    return part * count if drawn is None else Random(f"{drawn} {part}").randrange(10**9)
