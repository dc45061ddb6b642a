"""Work and memory of every decoder grow no faster than its input, for inputs made to be expensive."""

from __future__ import annotations

import pytest
import structlog

from tests.fuzz.target import Grow, Target
from tests.fuzz.targets import TARGETS
from tests.fuzz.work import cost

ELEMENTS = 150
EVERY = {
    "captures": 200,
    "codecs": 1600,
    "codecs-as-a-broker": 1600,
    "field-offsets": 1200,
    "streams": 120,
    "fetch-requests": 40,
    "connections": 300,
    "record-batches": 24,
    "produced-records": 24,
    "replica-fetches": 4,
}
"""One of this number of inputs is tried in `make test`; all, if a target is not named."""
EVERY_SLOW = 40
"""The same, in `make test-all`."""
STEPS_MORE = 400
"""Number of steps by which twice the elements may exceed twice the steps."""
BYTES_MORE = 64 * 1024
PEAK_PER_BYTE = 400
"""The smallest elements take one byte on the wire, and a few hundred as objects."""


def excess(target: Target, grow: Grow) -> str:
    """Say how work or memory grows faster than the input; "" if they do not."""
    small, large = grow(ELEMENTS), grow(2 * ELEMENTS)
    target.run(small)  # what is made once is made before
    target.run(large)
    less, more = cost(lambda: target.run(small)), cost(lambda: target.run(large))
    if more.steps > 2.1 * less.steps + STEPS_MORE:
        return f"{len(small)} B: {less.steps} steps, {len(large)} B: {more.steps}"
    if more.peak_bytes > PEAK_PER_BYTE * len(large) + BYTES_MORE:
        return f"{len(large)} B: {more.peak_bytes} B of memory"
    return ""


def excesses(name: str, every: int) -> dict[str, str]:
    """Every such input of a target for which work or memory grows faster."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    target = TARGETS[name]
    cases = list(target.growing().items())[::every]
    return {case: said for case, grow in cases if (said := excess(target, grow))}


@pytest.mark.parametrize("name", TARGETS)
def test_work_and_memory_grow_no_faster_than_the_input(name: str) -> None:
    assert not excesses(name, EVERY.get(name, 1))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, every in EVERY.items() if every > EVERY_SLOW])
def test_work_and_memory_grow_no_faster_than_the_input_for_more_inputs(name: str) -> None:
    assert not excesses(name, EVERY_SLOW)
