"""pytest fixtures for tests against real brokers; a directory's conftest.py imports those it wants.

`kafka_cluster("3.9.1")` is shared by all tests of a session that ask for the same thing,
`fresh_cluster("3.9.1")` belongs to one test, which may break it. `topic` is a name that no other test has.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Protocol, TypedDict, Unpack

import pytest

from tests.kafka.cluster import Cluster, ClusterError

__all__ = ["ClusterOptions", "StartCluster", "fresh_cluster", "kafka_cluster", "topic"]

_MOST_ALIVE = 2
"""In each worker of pytest-xdist; tests are ordered by release. An idle broker takes 1 to 3 % of a core, as
much in a minute as a start takes.
"""
_NUMBERS = itertools.count(1)


class ClusterOptions(TypedDict, total=False):
    """What a test may choose; see `Cluster`."""

    brokers: int
    first_id: int
    settings: Mapping[str, str]
    heap: str
    optimized: bool
    with_jmx: bool
    classes: str


class StartCluster(Protocol):
    """What the fixtures hand to a test: call it to get a running cluster."""

    def __call__(self, version: str, **options: Unpack[ClusterOptions]) -> Cluster: ...


class SharedClusters:
    """One running cluster per distinct request; the one asked for longest ago makes room for the next."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._clusters: dict[str, Cluster] = {}
        self._in_use: set[str] = set()
        """Clusters that the running test has asked for: they stay, however many there are."""

    def get(self, version: str, **options: Unpack[ClusterOptions]) -> Cluster:
        """A running cluster; a new one if the old one lost a broker. Raises as Cluster.start.

        Each has a listener for SASL, so that tests with SASL and without share it.
        """
        key = json.dumps([version, options], sort_keys=True)
        cluster = self._clusters.pop(key, None)
        if cluster is None or not _is_whole(cluster):
            if cluster is not None:
                cluster.stop(keep_logs=True)
            self._make_room()
            cluster = Cluster(version, with_sasl=True, say=_say(self._session.config), **options)
            cluster.start()
        self._clusters[key] = cluster
        self._in_use.add(key)
        return cluster

    def release(self) -> None:
        self._in_use.clear()

    def close(self) -> None:
        """Stop every cluster; logs stay, and are named, if a test of the session failed."""
        for cluster in self._clusters.values():
            cluster.stop(keep_logs=self._session.testsfailed > 0)
        self._clusters.clear()

    def _make_room(self) -> None:
        idle = [key for key in self._clusters if key not in self._in_use]
        for key in idle[: max(0, len(self._clusters) - _MOST_ALIVE + 1)]:
            self._clusters.pop(key).stop(keep_logs=self._session.testsfailed > 0)


_SHARED = pytest.StashKey[SharedClusters]()


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[StartCluster]:
    """Call it for a cluster that other tests use too: leave its brokers and its settings alone."""
    _require_mark(request)
    config = request.config
    if _SHARED not in config.stash:
        config.stash[_SHARED] = SharedClusters(request.session)
        config.add_cleanup(config.stash[_SHARED].close)
    yield config.stash[_SHARED].get
    config.stash[_SHARED].release()


@pytest.fixture
def fresh_cluster(request: pytest.FixtureRequest) -> Iterator[StartCluster]:
    """Call it for a cluster that is this test's own, and ends with it."""
    _require_mark(request)
    failed_before, clusters, say = request.session.testsfailed, list[Cluster](), _say(request.config)

    def start(version: str, **options: Unpack[ClusterOptions]) -> Cluster:
        cluster = Cluster(version, say=say, **options)
        clusters.append(cluster)
        cluster.start()
        return cluster

    yield start
    for cluster in clusters:
        cluster.stop(keep_logs=request.session.testsfailed > failed_before)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that is this test's own and tells whose it is; the topic itself is not created."""
    return f"{re.sub('[^a-zA-Z0-9_-]+', '-', request.node.name)[:80].strip('-')}-{next(_NUMBERS)}"


def _require_mark(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("broker") is None:
        pytest.fail("a test that needs a broker must be marked: @pytest.mark.broker", pytrace=False)


def _is_whole(cluster: Cluster) -> bool:
    with suppress(ClusterError):
        cluster.check()
        return cluster.alive == set(cluster.ports)
    return False


def _say(config: pytest.Config) -> Callable[[str], None]:
    """Writes past pytest's capturing, so that a long download is seen; pytest-xdist's workers stay silent."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if not isinstance(reporter, pytest.TerminalReporter):
        return lambda _text: None

    def say(text: str) -> None:
        reporter.ensure_newline()
        reporter.write_line(text)

    return say
