"""The generator keeps its promises, and the comparison tells what is apart."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.mutations.compare import differences, undisturbed
from tests.mutations.play import Lane, Played
from tests.mutations.requests import Answer, Create, Result, Topic
from tests.mutations.sequences import BURST, Expected, Step, sequence


def test_the_mutation_model_charges_tokens_as_kip_599_says() -> None:
    """KIP-599's rule, by hand: the first request costs 5 of 6 tokens."""
    first = sequence(0, "s", 0.1)[0]
    assert isinstance(first.mutation, Create)
    assert sum(topic.partitions for topic in first.mutation.topics) == 5
    assert first.expected.balance == BURST - 5


def step(at_s: float, code: int = 0, wait_s: float | None = None, *, full: bool = False) -> Step:
    """A creation of one topic."""
    expected = Expected(Counter({("a", code): 1}), wait_s, full, 0.0)
    return Step(at_s, Create((Topic("a"),)), expected)


def lane(side: str, *played: tuple[float, float, int, int]) -> Lane:
    """Two steps, a second apart, and (sent, answered, code, throttle_ms) of each."""
    steps = (step(0.0, full=True), step(1.5, 89, wait_s=2.0))
    answers = [
        Played(Answer(throttle_ms, (Result("a", code),)), sent_s, answered_s)
        for sent_s, answered_s, code, throttle_ms in played
    ]
    return Lane(side, "s", ("", 0), steps, played=answers)


@pytest.mark.parametrize(
    ("weir", "says"),
    [
        ((1.5, 1.51, 89, 2000), ""),
        ((1.5, 1.51, 89, 2045), ""),
        ((1.5, 1.51, 89, 2100), "apart"),
        ((1.5, 1.51, 89, 1900), "apart"),
        ((1.5, 1.51, 89, 0), "throttle times"),
        ((1.5, 1.51, 0, 2000), "the model"),
    ],
)
def test_differences_between_weir_and_a_broker_are_reported(
    weir: tuple[float, float, int, int], says: str
) -> None:
    own = lane("broker", (0.0, 0.001, 0, 0), (1.5, 1.501, 89, 2000))
    other = lane("weir", (0.0, 0.001, 0, 0), weir)
    assert undisturbed((own, other)) == 2
    found = list(differences(own, other, 2))
    assert bool(found) == bool(says)
    assert says in "".join(found)
