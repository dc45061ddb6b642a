"""Format results as text (rows of the table, introduction and verdict) and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from weir.demo.measure import TOLERANCE, ClientResult

PERCENT: Final = round(TOLERANCE * 100)
WIDTH: Final = 80


class Scene(NamedTuple):
    """Facts about the measurement for introduction and JSON: cluster, number of clients, duration."""

    cluster: str
    """Description of the cluster, such as "A mock cluster of 3 brokers"."""
    upstream: str
    clients: int
    seconds: float
    """Duration (s) of the measurement under quotas, without the warm-up."""
    before_s: float
    """Duration (s) of the measurement without quotas."""


class DemoRow(NamedTuple):
    """The cells of one row of the table; a row is usually shorter than 80 characters."""

    client_id: str
    who: str
    before: str
    quota: str
    after: str
    throttle: str
    verdict: str


HEADINGS: Final = DemoRow("client-id", "who", "without", "quota, MB/s", "with", "throttle time", "verdict")
RIGHT: Final = frozenset({"before", "quota", "after", "throttle"})
"""Names of the right-aligned columns."""


def live_row(result: ClientResult) -> DemoRow:
    """Return the table row of one client spec during the measurement, with the latest throttle time."""
    return _row(result, f"{result.now.throttle_last_ms} ms", "")


def final_row(result: ClientResult) -> DemoRow:
    """Return the table row of one client spec after the measurement, with the longest throttle time."""
    verdict = result.failure or (
        "unslowed" if result.quota is None else f"holds {round(100 * result.deviation):+d}%"
    )
    return _row(result, f"up to {result.now.throttle_max_ms} ms", verdict)


def _row(result: ClientResult, throttle: str, verdict: str) -> DemoRow:
    spec = result.spec
    who = spec.role if spec.clients == 1 else f"{spec.clients} {spec.role}s"
    after = "-" if result.after is None else _mb(result.after.rate)
    throttle = throttle if result.now.throttled else "none"
    return DemoRow(spec.client_id, who, _mb(result.before.rate), _quota(result), after, throttle, verdict)


def _quota(result: ClientResult) -> str:
    spec = result.spec
    if spec.quota is None:
        return "none"
    before = "default " if spec.by_default else f"{result.brokers} x " if spec.every_broker else ""
    return f"{before}{_mb(spec.quota)}"


def _mb(rate: float) -> str:
    return f"{rate / 1e6:.2f}"


def aligned(rows: Sequence[DemoRow]) -> str:
    """Return the rows as an aligned plain-text table."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(_padded(row, widths)).rstrip() for row in rows)


def _padded(row: DemoRow, widths: Sequence[int]) -> list[str]:
    return [
        text.rjust(width) if name in RIGHT else text.ljust(width)
        for name, text, width in zip(DemoRow._fields, row, widths, strict=True)
    ]


def progress_line(done: float, results: Sequence[ClientResult]) -> str:
    """Return one line with the progress of a phase (`done`, 0 to 1) and the clients' rates (MB/s)."""
    rates = ", ".join(f"{result.spec.client_id} {_mb(result.rate)}" for result in results)
    return f"{done:4.0%}  {rates}"


def opening(scene: Scene) -> str:
    """Return the introduction, which tells the reader which clients run through Weir and for how long."""
    return _filled(
        f"{scene.cluster}, Weir in front, and {scene.clients} librdkafka clients that go through Weir. Each "
        "client-id asks for 5 MB/s, `audit` for 3 MB/s. Rates count the bytes that clients see acknowledged, "
        "or consume. Throttle times are those that clients report. 1 MB is 1,000,000 bytes.",
        f"For {scene.before_s:g} seconds Weir has no quotas. Then its quota file gets them. They hold at "
        "each broker; only `everywhere` uses more than one. Kafka's algorithm lets ten seconds' worth pass "
        "at once, so clients first ask for just their quotas, for ten seconds. `steady` does not, because "
        "its quota has smooth pacing. Then all ask for more again, and are measured for "
        f"{scene.seconds:g} s.",
    )


def closing(results: Sequence[ClientResult]) -> tuple[str, str]:
    """Return the verdict on all results, and a note that explains the tolerance."""
    failures = [f"{result.spec.client_id} ({result.failure})" for result in results if result.failure]
    if failures:
        verdict = f"Failed: {', '.join(failures)}. On a busy machine, try --for 60."
    else:
        verdict = (
            f"Passed: every client with a quota was above it before, and is within {PERCENT} % of it now. "
            "`audit`, which has no quota, was not slowed down."
        )
    note = (
        f"Kafka's own algorithm swings by up to {PERCENT} % over half a minute; over minutes the quota holds."
    )
    return _filled(verdict), _filled(note)


def _filled(*paragraphs: str) -> str:
    return "\n\n".join(textwrap.fill(paragraph, WIDTH) for paragraph in paragraphs)


def as_json(scene: Scene, results: Sequence[ClientResult]) -> str:
    """Return one JSON object; rates and quotas are in bytes/s over all brokers used, times in ms."""
    entities = [
        {
            "client_id": result.spec.client_id,
            "role": result.spec.role,
            "quota_entity": None if result.quota is None else str(result.spec.entity),
            "clients": result.spec.clients,
            "brokers": result.brokers,
            "quota_bytes_per_s": result.quota,
            "demand_bytes_per_s": result.spec.demand,
            "pacing": result.spec.pacing.value,
            "rate_without_quotas_bytes_per_s": round(result.before.rate),
            "rate_bytes_per_s": round(result.rate),
            "deviation": round(result.deviation, 4),
            "throttled_responses": result.now.throttled,
            "throttle_max_ms": result.now.throttle_max_ms,
            "passed": not result.failure,
            "failure": result.failure or None,
        }
        for result in results
    ]
    summary = {
        "upstream": scene.upstream,
        "seconds": scene.seconds,
        "tolerance": TOLERANCE,
        "entities": entities,
        "passed": not any(result.failure for result in results),
    }
    return msgspec.json.encode(summary).decode()
