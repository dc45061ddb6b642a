"""Weir between two captures: one of its clients and itself, one of itself and its brokers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.integration.capturing import SUMMARY, CapturingWeir
from tests.integration.weir import Weir
from weir.conformance.capture import CaptureReader
from weir.conformance.capture.json_lines import json_lines
from weir.conformance.events import Side
from weir.conformance.verify import Finding, verify


class Recording(NamedTuple):
    """Weir while clients use it, and the files that hold their bytes afterwards."""

    bootstrap: str
    """Address for clients: the first capture's."""
    front: Path
    """Capture between the clients and Weir."""
    back: Path
    """Capture between Weir and the brokers."""


@contextmanager
def recording(upstream: str, quotas: str, directory: Path) -> Iterator[Recording]:
    """Run Weir between two captures; at the end, both files are whole. Fails if a capture lacks a byte."""
    front, back = directory / "front.weircap", directory / "back.weircap"
    with ExitStack() as stack:
        behind = stack.enter_context(CapturingWeir(upstream, back))
        weir = stack.enter_context(Weir(behind.bootstrap, quotas))
        before = stack.enter_context(CapturingWeir(weir.bootstrap, front))
        yield Recording(before.bootstrap, front, back)
        assert [each.stop() for each in (before, weir, behind)] == [0, 0, 0]
        for capture in (before, behind):
            ((*_, dropped),) = SUMMARY.findall(capture.log)
            assert dropped == "0"


class Found(NamedTuple):
    """Findings of a capture that have the same rule, API, version and path without indices."""

    first: Finding
    times: int


Key = tuple[str, str, int, str]


def findings(capture: Path) -> dict[Side, dict[Key, Found]]:
    found: dict[Side, dict[Key, Found]] = {side: {} for side in Side}
    for finding in verify(CaptureReader(capture)):
        first, times = found[finding.side].get(finding.key, (finding, 0))
        found[finding.side][finding.key] = Found(first, times + 1)
    return found


def answered(capture: Path) -> dict[str, int]:
    """The longest throttle time (ms) in the responses of a capture, by API."""
    longest: dict[str, int] = {}
    for line in map(json.loads, json_lines(CaptureReader(capture))):
        if line["event"] == "response":
            throttle_ms = line["message"].get("throttle_time_ms", 0)
            longest[line["api"]] = max(longest.get(line["api"], 0), throttle_ms)
    return longest
