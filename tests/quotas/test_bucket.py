"""Token buckets: Kafka's numbers, and what one request makes of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotas.bucket import MutationCharge, TokenBucket
from tests.quotas.vectors import BUCKET, BucketCase, BucketStep


@pytest.mark.parametrize("case", BUCKET, ids=lambda case: f"{case.id}: {case.note}")
def test_kafkas_numbers_to_the_last_bit(case: BucketCase) -> None:
    bucket = TokenBucket(case.quota, case.num_samples, case.window_ms, now_ms=0, tokens=0.0)
    for step in case.steps:
        if step.op == "set_quota":
            bucket.quota = step.v
        elif step.op == "request":
            check_request(bucket, step, case.t0_ms)
        else:
            check_step(bucket, step, case.t0_ms + step.t)


def check_step(bucket: TokenBucket, step: BucketStep, now_ms: int) -> None:
    if step.op != "measure":
        assert step.v is not None
        charge = MutationCharge(bucket, strict=step.op == "strict")
        assert charge.admit(step.v, now_ms) is step.accepted
        assert charge.throttle_ms(now_ms) == step.throttle_ms
    assert bucket.peek(now_ms) == step.tokens
    assert bucket.tokens(now_ms) == step.tokens


def check_request(bucket: TokenBucket, step: BucketStep, t0_ms: int) -> None:
    charge = MutationCharge(bucket, strict=step.kind == "strict")
    for topic in step.topics:
        now_ms = t0_ms + topic.t
        assert charge.admit(topic.v, now_ms) is topic.accepted
        assert topic.error_code == (0 if topic.accepted else 89)
        if topic.exception_throttle_ms is not None:
            assert charge.throttle_ms(now_ms) == topic.exception_throttle_ms
    respond_ms = t0_ms + step.respond_t
    assert charge.throttle_ms(respond_ms) == step.response_throttle_ms
    assert bucket.tokens(respond_ms) == step.tokens


def test_every_vector_is_here() -> None:
    assert len(BUCKET) == 34


def test_a_bucket_begins_full_whatever_the_clock_says() -> None:
    for now_ms in (0, 5, 10**13):
        assert TokenBucket(2.0, 11, 1000, now_ms).tokens(now_ms) == 22.0


def test_a_bucket_without_quota_has_all_the_tokens_there_are() -> None:
    bucket = TokenBucket(None, 11, 1000, now_ms=0)
    bucket.take(1e12, 0)
    assert bucket.tokens(0) == bucket.peek(0) == 2.0**63


@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(-10, 100)), max_size=40))
def test_looking_changes_nothing(story: list[tuple[int, float]]) -> None:
    watched, alone = TokenBucket(0.7, 11, 1000, 0), TokenBucket(0.7, 11, 1000, 0)
    now_ms = 0
    for gap_ms, cost in story:
        watched.peek(now_ms + gap_ms // 2)
        now_ms += gap_ms
        watched.take(cost, now_ms)
        alone.take(cost, now_ms)
        assert watched.tokens(now_ms) == alone.tokens(now_ms) <= 7.7


@given(st.floats(0.01, 1000), st.floats(0.1, 10_000))
def test_who_waits_as_told_is_admitted_within_a_ms(quota: float, cost: float) -> None:
    bucket = TokenBucket(quota, 11, 1000, 0, tokens=0.0)
    bucket.take(cost, 0)
    refused = MutationCharge(bucket, strict=True)
    assert not refused.admit(1, 0)
    assert MutationCharge(bucket, strict=True).admit(1, refused.throttle_ms(0) + 1)
