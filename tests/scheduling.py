"""Which worker of pytest-xdist runs which tests with brokers."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    import pytest
    from xdist.remote import Producer

_RELEASE: Final = re.compile(r"\[[^]]*?(\d+(?:\.\d+)+)[^]]*\]")
_GROUP_MAX: Final = 12
"""Maximum number of tests of one release that one worker must run; more would leave the others idle."""


def by_release(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Return a schedule in which tests with the same Kafka release in their parameters run in one worker, up
    to 12 of them: each worker that runs one of them starts a cluster. All others run one by one.
    """
    counts = Counter[str]()

    @cache  # pytest-xdist asks again when a test has ended
    def group(node_id: str) -> str:
        found = _RELEASE.search(node_id)
        if found is None:
            return node_id
        counts[found[1]] += 1
        return f"{found[1]}-{(counts[found[1]] - 1) // _GROUP_MAX}"

    schedule = LoadScopeScheduling(config, log)
    schedule._split_scope = group  # what subclasses override: pytest-xdist has no types
    return schedule
