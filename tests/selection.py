"""Selection and order of the collected tests.

`--part=K/N` runs the K-th of N parts: CI goes through the parts in turn. `--until=TIME` skips the tests that
would begin later, so that CI ends in time on a slow machine. Tests with real brokers are ordered
by the release that they need, so that a worker of pytest-xdist starts a cluster once and keeps few at a time.
"""

from __future__ import annotations

import inspect
import re
import time
import zlib
from typing import Final

import pytest

from tests.kafka.jars import locked_versions
from tools.lanes.results import OUT_OF_TIME

_PART: Final = re.compile(r"([1-9][0-9]*)/([1-9][0-9]*)")
_OWN_CLUSTER: Final = "fresh_cluster"
SPARK_TIMEOUT_S: Final = 900


def parse_part(text: str) -> tuple[int, int]:
    """Return K and N of "K/N". Raises pytest.UsageError unless 1 <= K <= N."""
    found = _PART.fullmatch(text)
    part, parts = (int(number) for number in found.groups()) if found else (0, 0)
    if not 1 <= part <= parts:
        raise pytest.UsageError(f"--part={text}: expected K/N with 1 <= K <= N, for example --part=2/3")
    return part, parts


def is_in_part(node_id: str, part: int, parts: int) -> bool:
    """Return whether a test belongs to this part: a hash of its name decides, so that new tests move none."""
    return zlib.crc32(node_id.encode()) % parts == part - 1


def select_part(config: pytest.Config, items: list[pytest.Item], part: int, parts: int) -> None:
    """Deselect the tests of all other parts."""
    chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        chosen[is_in_part(item.nodeid, part, parts)].append(item)
    if chosen[False]:
        config.hook.pytest_deselected(items=chosen[False])
        items[:] = chosen[True]


def skip_after(until_s: float) -> None:
    """Skip the test that begins now if this time (s since 1970) is over."""
    if time.time() > until_s:
        pytest.skip(OUT_OF_TIME)


def limit_sparks_time(items: list[pytest.Item]) -> None:
    """Give tests with Spark a limit that only hangs exceed: a slow machine takes minutes to plan its jobs."""
    for item in items:
        if item.get_closest_marker("spark") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SPARK_TIMEOUT_S))


def order_by_cluster(items: list[pytest.Item]) -> None:
    """Put tests without a broker first, then those with a cluster of their own, which take longest, then the
    others by release and module.
    """
    releases = {release: number for number, release in enumerate(locked_versions())}
    items.sort(key=lambda item: _cluster_rank(item, releases))


def _cluster_rank(item: pytest.Item, releases: dict[str, int]) -> tuple[int, int]:
    if item.get_closest_marker("broker") is None:
        return 0, 0
    if _OWN_CLUSTER in getattr(item, "fixturenames", ()):
        return 1, 0
    return 2, releases.get(_release(item), len(releases))


def _release(item: pytest.Item) -> str:
    """Return the Kafka release that a test names: in its parameters, else in its source. A guess, which
    only the order depends on.
    """
    callspec = getattr(item, "callspec", None)
    named = (
        [] if callspec is None else [value for value in callspec.params.values() if isinstance(value, str)]
    )
    found = [name for name in named if re.fullmatch(r"\d+(\.\d+)+", name)]
    if found:
        return found[0]
    function = getattr(item, "function", None)
    in_source = re.findall(r'"(\d+\.\d+\.\d+(?:\.\d+)?)"', inspect.getsource(function)) if function else []
    return in_source[0] if in_source else ""
