"""The results of a run as JSON, which serve as a baseline too."""

from __future__ import annotations

import msgspec

from weir.conformance.probe.case import Result


class ProbeOutcomes(msgspec.Struct):
    """JSON of `weir probe --json`, which serves as a baseline too."""

    target: str
    seed: int
    results: list[Result]
    notes: list[str] = []


def parse_baseline(data: bytes) -> set[tuple[str, str]]:
    """Return the failed cases of an earlier `--json`, with their summaries. Raises msgspec.DecodeError."""
    report = msgspec.json.decode(data, type=ProbeOutcomes)
    return {(result.case, result.summary) for result in report.results if not result.passed}
