"""The vectors are those of Kafka 3.9.1; the classes of the newest release say the same."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from tests.java.worker import run_java
from tests.quotas.vectors import BUCKET, RATE, BucketCase, BucketStep

pytestmark = [pytest.mark.broker, pytest.mark.oracle]

NEWEST: Final = "4.4.0"


def rates() -> tuple[list[dict[str, Any]], list[list[list[float]]]]:
    cases = [msgspec.to_builtins(case) for case in RATE]
    expected = []
    for case, made in zip(RATE, cases, strict=True):
        for step in made["steps"]:
            step["reads"] = step["op"] in {"record", "check"}
        read = [step for step in case.steps if step.op in {"record", "check"}]
        expected.append(
            [[step.rate, step.window_ms, step.throttle_ms, step.throttle_bounded_ms] for step in read]
        )
    return cases, expected


def buckets() -> tuple[list[dict[str, Any]], list[list[list[float]]]]:
    """Of each step that has one charge or none: `request` is a series of these."""
    simple = [case for case in BUCKET if all(step.op != "request" for step in case.steps)]
    cases = [bucket(case) for case in simple]
    return cases, [[[step.tokens] for step in case.steps if step.op != "set_quota"] for case in simple]


def bucket(case: BucketCase) -> dict[str, Any]:
    steps = [{"op": step.op, "t": step.t, "v": charge(step), "reads": True} for step in case.steps]
    made: dict[str, Any] = msgspec.to_builtins(case)
    return made | {"stat": "TokenBucket", "steps": steps}


def charge(step: BucketStep) -> float | None:
    return step.v if step.op == "set_quota" or step.accepted else None


@pytest.mark.parametrize("made", [rates, buckets])
def test_the_newest_kafkas_statistics_read_what_the_vectors_say(made: Any) -> None:
    cases, expected = made()
    assert run_java(NEWEST, "quotas_worker", "Kafka's statistics", {"cases": cases}) == expected
