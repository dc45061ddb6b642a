"""Judgements of the quota profile. The numbers follow Kafka's formulas (KIP-13, KIP-124, KIP-599)."""

from __future__ import annotations

import pytest

from weir.conformance.probe.quotas import harmless, judgement
from weir.conformance.probe.quotas.jobs import advertised, has_throttle_field
from weir.protocol import schema
from weir.protocol.api import ApiKey
from weir.protocol.codec import codec
from weir.protocol.versions import VersionRange

WINDOW = judgement.Window()


@pytest.mark.parametrize(
    ("throttle_ms", "passes"), [(1900, False), (2000, True), (3000, True), (3100, False)]
)
def test_byte_throttle_lies_between_those_of_the_longest_and_shortest_window(
    throttle_ms: int, passes: bool
) -> None:
    """13,000 bytes at 1,000 bytes/s: 13 s less a window of 10 to 11 s."""
    assert (judgement.byte_throttle(throttle_ms, 13_000, 1000, WINDOW) == "") is passes


@pytest.mark.parametrize(("throttle_ms", "passes"), [(0, False), (1, True), (1000, True), (1001, False)])
def test_request_throttle_is_at_most_one_window(throttle_ms: int, passes: bool) -> None:
    assert (judgement.request_throttle(throttle_ms, WINDOW) == "") is passes


@pytest.mark.parametrize(
    ("throttle_ms", "passes"), [(3400, False), (3500, True), (4000, True), (4100, False), (0, False)]
)
def test_mutation_throttle_is_the_time_until_missing_tokens_are_back(throttle_ms: int, passes: bool) -> None:
    """0.8 tokens at 0.2/s take 4 s; up to 500 ms are over."""
    assert (judgement.mutation_throttle(throttle_ms, 0.8, 0.2, 500) == "") is passes


@pytest.mark.parametrize(
    ("first_ms", "next_ms", "prompt", "passes"),
    [
        (2, 1001, True, True),
        (2, 900, True, False),  # no mute
        (1000, 1002, True, False),  # the response was held
        (1000, 1002, False, True),  # brokers before 2.0 hold it
        (1300, 2310, True, True),  # a busy target, and then a whole mute
        (2, 4100, True, False),  # muted for too long
    ],
)
def test_mute_delays_the_next_response_and_not_the_throttled_one(
    first_ms: float, next_ms: float, prompt: bool, passes: bool
) -> None:
    assert (judgement.mute(1000, first_ms, next_ms, prompt=prompt) == "") is passes


def test_mute_cannot_be_judged_without_a_throttle_time() -> None:
    assert judgement.mute(0, 1, 2, prompt=True)
    assert judgement.not_muted("another client-id", 1, 0)


@pytest.mark.parametrize(("per_s", "passes"), [(700, False), (1000, True), (1100, True), (2000, False)])
def test_rate_over_ten_seconds_is_near_the_quota(per_s: int, passes: bool) -> None:
    charges = [(float(at_s), per_s) for at_s in range(20)]
    assert (judgement.rate(charges, 5, 15, 1000) == "") is passes


@pytest.mark.parametrize(
    ("code", "version", "passes"), [(89, 6, True), (0, 6, False), (0, 5, True), (89, 5, False)]
)
def test_only_strict_versions_refuse_topics_with_error_89(code: int, version: int, passes: bool) -> None:
    assert (judgement.refusal(code, "CreateTopics", version, 6) == "") is passes


def test_a_complaint_names_the_value_the_right_value_and_the_kip() -> None:
    assert judgement.below_quota(70) == (
        "throttle_time_ms is 70 for a client below its quota; it should be 0 (KIP-124)"
    )


def test_produce_versions_that_brokers_only_advertise_are_not_checked() -> None:
    """Kafka 4.x advertises Produce from v0 on, and accepts v3 and later (KIP-896, KAFKA-18659)."""
    offered: dict[int, VersionRange] = {
        ApiKey.PRODUCE: VersionRange(0, 12),
        ApiKey.FETCH: VersionRange(4, 17),
    }
    assert advertised(offered)[ApiKey.PRODUCE] == VersionRange(3, 12)
    offered[ApiKey.FETCH] = VersionRange(0, 12)
    assert advertised(offered)[ApiKey.PRODUCE] == VersionRange(0, 12)


def test_every_harmless_request_can_be_written_in_every_version() -> None:
    count = 0
    for api_key in schema.api_keys():
        found = schema.api(api_key)
        assert found is not None
        for version in found.request.versions:
            message = harmless.request(api_key, version)
            if message is not None and has_throttle_field(api_key, version):
                codec(type(message), version).encode(message)
                count += 1
    assert count > 190
