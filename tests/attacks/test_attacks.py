"""Attackers in a process of their own beside a polite client: no turn of Weir's reactor is long."""

from __future__ import annotations

from typing import Final

import pytest

from tests.attacks.attacks import ATTACKS, Attack
from tests.attacks.harness import run
from tests.attacks.walk import BUSY, TURN_US

SECONDS: Final = 2.0
LONGER: Final = {
    "flood-1m": "has the APIs of test_turns.LONGER, and the cases of test_turns.STREAMED",
}
"""Attacks that still make longer turns, and why."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "attack", [each for each in ATTACKS if each.name not in LONGER], ids=lambda each: each.name
)
def test_a_turn_beside_attackers_is_short(attack: Attack) -> None:
    """The polite client's times are printed: they depend on what else the machine does."""
    result = run(attack, SECONDS)
    quiet, attacked = (each.ms(0.99) for each in (result.quiet, result.attacked))
    print(f"{attack.name}: polite p99 {quiet:.1f} ms, {attacked:.1f} ms under attack")
    print(
        f"longest turn {result.turns.longest_ns / 1e6:.1f} ms of {result.turns.number}; {result.turns.stack}"
    )
    assert result.turns.number > 0
    assert result.turns.longest_ns < 1000 * BUSY * TURN_US
