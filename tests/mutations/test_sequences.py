"""The generator keeps its promises, and the comparison tells what is apart."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.mutations.compare import Interval, back_at_zero, between, differences, undisturbed
from tests.mutations.play import Lane, Played
from tests.mutations.requests import Answer, Create, Result, Topic
from tests.mutations.sequences import BURST, MARGIN_S, RATE, SECONDS, SEEDS, Expected, Step, sequence
from weir.protocol.error_codes import ErrorCode

MANY = range(60)


@pytest.mark.parametrize("seed", [0, 7])
def test_the_same_seed_generates_the_same_mutation_sequence(seed: int) -> None:
    assert sequence(seed, "s", 15.0) == sequence(seed, "s", 15.0)
    assert sequence(seed, "s", 15.0) != sequence(seed + 1, "s", 15.0)


def test_generated_mutations_stay_away_from_the_limit_by_a_margin() -> None:
    for seed in MANY:
        full_s = 0.0
        for step in sequence(seed, "s", 30.0):
            since_s = step.at_s - full_s
            if step.expected.full_before:
                full_s = step.at_s
            assert since_s == 0 or MARGIN_S - 0.001 < since_s * RATE % 1 < 1 - MARGIN_S + 0.001, (seed, step)


def test_generated_mutations_cover_every_version_and_both_outcomes() -> None:
    steps = [step for seed in SEEDS for step in sequence(seed, "s", SECONDS)]
    versions = {(type(step.mutation).__name__, step.mutation.version) for step in steps}
    assert len(versions) == 8 + 4 + 7
    codes = Counter(code for step in steps for _, code in step.expected.codes)
    assert min(codes[0], codes[ErrorCode.THROTTLING_QUOTA_EXCEEDED]) > len(steps) / 5


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


def test_a_throttle_time_bounds_the_moment_when_tokens_return() -> None:
    broker = lane("broker", (0.0, 0.01, 0, 0), (1.5, 1.53, 89, 2000))
    low, high = back_at_zero(broker, 1)
    assert low == pytest.approx(3.49)
    assert high == pytest.approx(3.53)
    assert between(broker.played[0], broker.played[0]) == Interval(0.0, 0.0)
    assert Interval(1.0, 2.0).apart(Interval(2.5, 3.0)) == Interval(2.5, 3.0).apart(Interval(1.0, 2.0)) == 0.5
    assert Interval(1.0, 2.0).apart(Interval(1.5, 1.6)) == 0.0


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


@pytest.mark.parametrize("late", [(1.95, 1.96, 89, 2000), (1.5, 2.0, 89, 2000), (1.05, 1.06, 89, 2000)])
def test_mutations_sent_too_late_are_not_compared(late: tuple[float, float, int, int]) -> None:
    own = lane("broker", (0.0, 0.001, 0, 0), (1.5, 1.501, 89, 2000))
    assert undisturbed((own, lane("weir", (0.0, 0.001, 0, 0), late))) == 1
