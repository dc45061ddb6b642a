"""Token buckets. Kafka's numbers for them are compared in test_mutations, through budgets."""

from hypothesis import given
from hypothesis import strategies as st

from weir.quotas.limiters.bucket import TokenBucket


@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(-10, 100)), max_size=40))
def test_peeking_at_a_token_bucket_does_not_change_it(story: list[tuple[int, float]]) -> None:
    watched, alone = TokenBucket(0.7, 11, 1000, 0), TokenBucket(0.7, 11, 1000, 0)
    now_ms = 0
    for gap_ms, cost in story:
        watched.peek(now_ms + gap_ms // 2)
        now_ms += gap_ms
        watched.take(cost, now_ms)
        alone.take(cost, now_ms)
        assert watched.tokens(now_ms) == alone.tokens(now_ms) <= 7.7
