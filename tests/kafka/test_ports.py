"""Ports that are free, and stay so: workers of pytest do not take each other's."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tests.kafka import ports
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


def test_a_port_that_nobody_listens_on_yet_is_not_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_GIVEN", set())
    monkeypatch.setattr(ports, "_stretch", lambda: (20_000, 20_003))
    monkeypatch.setattr(ports, "is_free", lambda _port: True)
    assert sorted(ports.free_range(1) for _ in range(3)) == [20_000, 20_001, 20_002]
