"""Hypothesis is deterministic here; relays are made on either poll set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests.proxy.rigs import Rig, open_descriptors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

settings.register_profile("proxy", derandomize=True, deadline=None, database=None)
settings.load_profile("proxy")


@pytest.fixture(params=["best", "selectors"])
def new_rig(request: pytest.FixtureRequest) -> Iterator[Callable[..., Rig]]:
    """Makes rigs on either poll set; afterwards no descriptor may be left."""
    before = open_descriptors()
    made: list[Rig] = []

    def make(*args: object, **kwargs: object) -> Rig:
        made.append(Rig(*args, poll_set=request.param, **kwargs))  # type: ignore[arg-type]  # as given
        return made[-1]

    yield make
    for rig in made:
        rig.close()
        assert len(rig.ends) == 1
    assert open_descriptors() == before
