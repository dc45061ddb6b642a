"""Rates: bit-equal with Kafka's classes, and with a plain retelling of the rules on sequences of our own."""

from dataclasses import dataclass
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.quotas.vectors import RATE, RateCase, RateStep
from weir.quotas.limiters.rate import Rate
from weir.quotas.limiters.simple_rate import SimpleRate
from weir.quotas.limiters.throttle import INT64_MAX, throttle_ms

AnyRate: TypeAlias = Rate | SimpleRate
STATS: dict[str, type[AnyRate]] = {"Rate": Rate, "SimpleRate": SimpleRate}


def case_id(case: RateCase) -> str:
    return f"{case.id}: {case.note}"


def check_reading(
    rate: AnyRate, step: RateStep, now_ms: int, quota: float | None, window_size_ms: int
) -> None:
    assert rate.peek(now_ms) == step.rate
    assert rate.measure(now_ms) == step.rate
    assert rate.window_ms(now_ms) == step.window_ms
    bound = float("inf") if quota is None else quota
    assert (step.rate > bound) is step.over
    assert throttle_ms(step.rate, bound, step.window_ms, INT64_MAX) == step.throttle_ms
    assert throttle_ms(step.rate, bound, step.window_ms, window_size_ms) == step.throttle_bounded_ms


@pytest.mark.parametrize("case", RATE, ids=case_id)
def test_rates_match_kafkas_exactly(case: RateCase) -> None:
    rate = STATS[case.stat](case.num_samples, case.window_ms)
    quota = case.quota
    for step in case.steps:
        now_ms = case.t0_ms + step.t
        if step.op == "set_quota":
            quota = step.v
            continue
        if step.op != "check":
            assert step.v is not None
            rate.record(step.v, now_ms)
        if step.op != "record_nocheck":
            check_reading(rate, step, now_ms, quota, case.window_ms)


@pytest.mark.parametrize("case", [case for case in RATE if case.stat == "Rate"], ids=case_id)
def test_rate_add_records_and_measures_as_kafka(case: RateCase) -> None:
    rate = Rate(case.num_samples, case.window_ms)
    for step in case.steps:
        now_ms = case.t0_ms + step.t
        if step.op == "record":
            assert step.v is not None
            assert rate.add(step.v, now_ms) == step.rate
        elif step.op == "record_nocheck":
            assert step.v is not None
            rate.record(step.v, now_ms)
        elif step.op == "check":
            assert rate.measure(now_ms) == step.rate


def test_all_rate_vectors_of_kafka_are_tested() -> None:
    measured = sum(step.op in {"record", "check"} for case in RATE for step in case.steps)
    assert (len(RATE), measured) == (57, 1135)


@dataclass
class Slot:
    start_ms: int
    last_ms: int
    value: float = 0.0


class PlainRate:
    """The rules of Kafka's Rate as its reference states them: every step looks at every slot."""

    def __init__(self, num_samples: int, window_size_ms: int) -> None:
        self.n, self.w = num_samples, window_size_ms
        self.slots: list[Slot] = []
        self.current = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self.slots:
            self.slots.append(Slot(now_ms, now_ms))
        if now_ms - self.slots[self.current].start_ms >= self.w:
            self.current = (self.current + 1) % (self.n + 1)
            if self.current == len(self.slots):
                self.slots.append(Slot(now_ms, now_ms))
            self.slots[self.current] = Slot(now_ms, now_ms)
        self.slots[self.current].value += value
        self.slots[self.current].last_ms = now_ms

    def measure(self, now_ms: int) -> float:
        self.slots = self.slots or [Slot(now_ms, now_ms)]
        self.slots = [
            Slot(now_ms, now_ms) if now_ms - slot.last_ms >= self.n * self.w else slot for slot in self.slots
        ]
        total = 0.0
        for slot in self.slots:
            total += slot.value
        elapsed_ms = now_ms - min(slot.start_ms for slot in self.slots)
        full = int(elapsed_ms / self.w)
        if full < self.n - 1:
            elapsed_ms += (self.n - 1 - full) * self.w
        return total / (max(elapsed_ms, 1) / 1000.0)


Gap: TypeAlias = tuple[int, float, str]

shapes = st.tuples(st.integers(1, 12), st.sampled_from([1, 7, 500, 1000]))
values = st.one_of(st.integers(0, 10**9), st.floats(0, 1e9))


def gaps(shortest_ms: int) -> st.SearchStrategy[list[Gap]]:
    """Steps of a story: (time since the last, value, what is done)."""
    times = st.one_of(
        st.integers(shortest_ms, 20), st.integers(0, 3000), st.sampled_from([0, 499, 500, 999, 1000, 11_000])
    )
    return st.lists(
        st.tuples(times, values, st.sampled_from(["add", "add", "record", "measure"])), max_size=80
    )


@given(shapes, gaps(shortest_ms=-300))
def test_the_fast_rate_agrees_with_a_plain_implementation(shape: tuple[int, int], story: list[Gap]) -> None:
    fast, plain = Rate(*shape), PlainRate(*shape)
    now_ms = 0
    for (
        gap_ms,
        value,
        what,
    ) in story:  # gaps may be negative: even a clock that steps back gives equal numbers
        now_ms += gap_ms
        if what != "measure":
            plain.record(value, now_ms)
        if what == "record":
            fast.record(value, now_ms)
            continue
        measured = fast.add(value, now_ms) if what == "add" else fast.measure(now_ms)
        assert measured == plain.measure(now_ms)


@given(shapes, gaps(shortest_ms=-300), st.floats(1, 1e9))
def test_a_rate_that_matters_is_never_left_out(
    shape: tuple[int, int], story: list[Gap], limit: float
) -> None:
    """With a bound on what is spare, `add` gives the rate of the plain rules, or 0 below the limit."""
    fast, plain = Rate(*shape), PlainRate(*shape)
    spare_total, now_ms = fast.total_at(limit), 0
    for gap_ms, value, what in story:
        now_ms += gap_ms
        plain.record(value, now_ms)
        if what == "record":
            fast.record(value, now_ms)
        else:
            added, expected = fast.add(value, now_ms, spare_total), plain.measure(now_ms)
            assert added == expected or (added == 0.0 and expected <= limit)


@given(shapes, gaps(shortest_ms=0), st.sampled_from([Rate, SimpleRate]))
def test_peeking_at_a_rate_equals_a_measurement_and_changes_nothing(
    shape: tuple[int, int], story: list[Gap], stat: type[AnyRate]
) -> None:
    watched, alone = stat(*shape), stat(*shape)
    now_ms = 0
    for gap_ms, value, what in story:
        now_ms += gap_ms
        if what == "measure":
            watched.peek(now_ms)
        else:
            watched.record(value, now_ms)
            alone.record(value, now_ms)
            seen = watched.peek(now_ms)
            assert watched.measure(now_ms) == seen == alone.measure(now_ms)


@given(shapes, gaps(shortest_ms=0), st.integers(0, 10**15))
def test_rates_depend_only_on_time_differences(
    shape: tuple[int, int], story: list[Gap], offset_ms: int
) -> None:
    here, there = Rate(*shape), Rate(*shape)
    now_ms = 0
    for gap_ms, value, _ in story:
        now_ms += gap_ms
        assert here.add(value, now_ms) == there.add(value, now_ms + offset_ms)
