"""A turn of the reactor is short, whatever a peer sends: every API, with few bytes and with long arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pytest

from tests.attacks.walk import BUSY, TURN_US, Case, cases

TRIES: Final = 10
"""The shortest of so many counts: other processes can only make a turn longer."""
SMALL: Final = 8_000
LARGE: Final = (64_000, 250_000)


def too_long(chosen: Iterable[Case]) -> dict[str, int]:
    """Return the cases whose longest turn (µs of CPU) is too long, however often they are tried."""
    found = {}
    for case in chosen:
        longest_us = case.longest_us()
        for _ in range(TRIES - 1):
            if longest_us <= BUSY * TURN_US:
                break
            longest_us = min(longest_us, case.longest_us())
        if longest_us > BUSY * TURN_US:
            found[case.name] = longest_us
    return found


@pytest.mark.slow  # it counts CPU time, and a busy machine needs several times as much
def test_a_turn_is_short_whatever_api_floods_a_connection() -> None:
    assert too_long(cases((SMALL,), 64_000, all_versions=False)) == {}


@pytest.mark.alone  # work on the core's other thread can make the same turn take three times as much CPU
@pytest.mark.slow
@pytest.mark.timeout(900)  # 40 s of CPU, on a machine with other work
@pytest.mark.parametrize("size", LARGE)
def test_a_turn_is_short_for_arrays_of_any_length(size: int) -> None:
    assert too_long(cases((size,), 500_000, all_versions=False)) == {}
