"""Ports that are free, and stay so: workers of pytest do not take each other's."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tests.kafka.ports import free_range, is_free

if TYPE_CHECKING:
    import pytest


def test_workers_never_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "3")
    drawn = []
    for worker in range(3):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{worker}")
        drawn.append([free_range(12) for _ in range(20)])
    for lower, upper in pairwise(drawn):
        assert max(lower) + 12 <= min(upper)


def test_alone_a_process_has_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER_COUNT", raising=False)
    first = free_range(3)
    assert all(is_free(port) for port in range(first, first + 3))
