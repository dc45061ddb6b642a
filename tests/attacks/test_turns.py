"""A turn of the reactor is short, whatever a peer sends: every API, with few bytes and with long arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from protocol.api import ApiKey
from tests.attacks.walk import BUSY, TURN_US, Case, cases

if TYPE_CHECKING:
    from collections.abc import Iterable

TRIES: Final = 3
"""The shortest of so many counts: other processes can only make a turn longer."""
SMALL: Final = 8_000
LARGE: Final = (64_000, 250_000)

LONGER: Final = {
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "a response of up to 1 MB is decoded as a whole, with all renewers",
}
"""APIs of whose messages a long one still takes longer, and why."""
NOT_THE_CLIENTS: Final = {
    ApiKey.API_VERSIONS: "api_keys",
    ApiKey.SASL_HANDSHAKE: "mechanisms",
    ApiKey.METADATA: "brokers",
    ApiKey.DESCRIBE_CLUSTER: "brokers",
    ApiKey.FIND_COORDINATOR: "coordinators",
    ApiKey.SHARE_FETCH: "node_endpoints",
    ApiKey.SHARE_ACKNOWLEDGE: "node_endpoints",
}
"""Arrays of responses whose length no client chooses: as many as the cluster has, or as keys were asked for
(a request for many keys is answered in pieces).
"""
STREAMED: Final = frozenset(
    {
        "PRODUCE v0, 250000 B of topic_data",
        "FETCH v0, 250000 B of topics",
        "FETCH v0, answer with 250000 B of responses",
    }
)
"""Cases that scan 250 KB of topics of six bytes each in one turn, while a topic has a rate: 8 to 15 ms. Names
have at least a byte at a broker; a scan of 42,000 topics takes 200 ns for each.
"""


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


def test_a_turn_is_short_whatever_api_floods_a_connection() -> None:
    """Of APIs whose long messages take longer, so that only short ones are tried here, see `LONGER`."""
    some = (case for case in cases((SMALL,), 64_000, all_versions=False) if case.api_key not in LONGER)
    assert too_long(some) == {}


@pytest.mark.slow
@pytest.mark.timeout(900)  # 40 s of CPU, on a machine with other work
@pytest.mark.parametrize("size", LARGE)
def test_a_turn_is_short_for_arrays_of_any_length(size: int) -> None:
    """In every API but those of `LONGER`: take an entry out of there when its API is mended."""
    chosen = (
        case
        for case in cases((size,), 500_000, all_versions=False)
        if case.api_key not in LONGER
        and case.name not in STREAMED
        and not case.name.endswith(f" of {NOT_THE_CLIENTS.get(ApiKey(case.api_key), '-')}")
    )
    assert too_long(chosen) == {}


@pytest.mark.slow
def test_every_api_that_is_said_to_take_longer_does() -> None:
    """Else its entry hides what comes later."""
    longest: dict[int, int] = {}
    for case in cases((250_000,), 64_000, all_versions=False):
        if case.api_key in LONGER and longest.get(case.api_key, 0) <= BUSY * TURN_US:
            longest[case.api_key] = max(longest.get(case.api_key, 0), case.longest_us())
    assert [ApiKey(key).name for key, us in longest.items() if us <= BUSY * TURN_US] == []
