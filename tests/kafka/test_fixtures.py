"""Which of the shared clusters are kept, by stand-ins for clusters."""

from __future__ import annotations

import pytest

from tests.kafka import fixtures
from tests.kafka.fixtures import SharedClusters


class StandIn:
    """A cluster that starts nothing."""

    running: list[StandIn]

    def __init__(self, version: str, **_options: object) -> None:
        self.version = version
        self.ports: dict[int, int] = {}
        self.alive: set[int] = set()

    def start(self) -> None:
        StandIn.running.append(self)

    def check(self) -> None:
        """All its processes run."""

    def stop(self, *, keep_logs: bool) -> None:
        assert not keep_logs or self in StandIn.running
        StandIn.running.remove(self)


@pytest.fixture
def shared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SharedClusters:
    monkeypatch.setattr(fixtures, "Cluster", StandIn)
    StandIn.running = []
    return SharedClusters(request.session)


def versions() -> list[str]:
    return [cluster.version for cluster in StandIn.running]


def test_the_same_shared_cluster_is_started_once(shared: SharedClusters) -> None:
    assert shared.get("3.9.1") is shared.get("3.9.1")
    assert shared.get("3.9.1", brokers=3) is not shared.get("3.9.1")
    assert len(StandIn.running) == 2


def test_the_shared_cluster_asked_for_longest_ago_is_stopped_for_a_fifth(shared: SharedClusters) -> None:
    for version in ("a", "b", "c", "d", "a", "e"):
        shared.get(version)
        shared.release()
    assert versions() == ["a", "c", "d", "e"]


def test_no_shared_cluster_of_the_running_test_is_stopped(shared: SharedClusters) -> None:
    """A test of five releases at once had its first cluster stopped under it."""
    shared.get("old")
    shared.release()
    for version in "abcdef":
        shared.get(version)
    assert versions() == list("abcdef")
    shared.release()
    shared.get("g")
    assert versions() == list("defg")
