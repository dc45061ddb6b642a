"""How many idle connections a machine allows, and what is said of them."""

from __future__ import annotations

import resource

import pytest

from bench import idle
from bench.idle import Idle


def test_few_idle_connections_leave_the_descriptor_limit_unchanged() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert idle.affordable(10) == 10
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


@pytest.mark.parametrize(("limit", "connections"), [(20_000, 9_900), (20_200, 10_000), (10**6, 10_000)])
def test_a_proxy_needs_two_descriptors_per_connection(
    monkeypatch: pytest.MonkeyPatch, limit: int, connections: int
) -> None:
    monkeypatch.setattr(idle, "raise_descriptor_limit", lambda _wanted: limit)
    assert idle.affordable(10_000) == connections


def test_the_descriptor_limit_is_raised_up_to_the_hard_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user who may not raise the hard limit."""
    limits = [1024, 20_000]

    def set_limits(_which: int, wanted: tuple[int, int]) -> None:
        if wanted[1] > limits[1]:
            raise ValueError("not allowed to raise maximum limit")
        limits[:] = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _which: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", set_limits)
    assert idle.raise_descriptor_limit(4096) == 4096
    assert idle.raise_descriptor_limit(50_000) == 20_000
    assert idle.raise_descriptor_limit(4096) == 20_000


def test_an_idle_connections_memory_is_the_growth_per_connection() -> None:
    assert Idle(1000, 30_000_000, 32_500_000, 0.0).connection_bytes == 2500
