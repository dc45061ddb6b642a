"""The text of docs/tour.md: the template, with the numbers of a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tools.tour.dashboard import SCRAPE_S, Board
from tools.tour.pictures import AFTER_S, CHANGED, NEW_LIMIT
from tools.tour.scene import CLIENTS, QUOTAS
from weir.demo.environment import WARM_UP_S
from weir.demo.measure import Span

HERE: Final = Path(__file__).parent
LINES: Final = ("quota usage", "throttling begins", "shadow throttling begins", "quota altered")
"""Events of the log that the tour shows: the first line of each."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Findings of a run."""

    kafka: str
    """Version of Kafka."""
    seconds: float
    """Time (s) of the measurement."""
    spans: Sequence[Span]
    """Readings of the clients, in the order of `CLIENTS`."""
    status: Any
    """Answer of /api/status."""
    throttled: Any
    """Answer of /api/throttled."""
    lines: Sequence[str]
    """Log lines of Weir."""
    previewed: str
    """Text of the preview on the page."""
    took_s: float
    """Time (s) from the change until the page showed the client."""
    load: str
    """Load average of the last five minutes, after the measurement."""
    board: Board | None
    """The evaluated dashboard; None without Prometheus."""


def render(facts: Facts) -> str:
    """Return the page. Raises ValueError if Weir has not logged a line of `LINES`."""
    environment = Environment(  # noqa: S701  # it writes Markdown, not HTML
        loader=FileSystemLoader(HERE),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("tour.md.j2").render(
        facts=facts,
        clients=list(zip(CLIENTS, facts.spans, strict=True)),
        quotas=QUOTAS.read_text("utf-8").strip(),
        log=[_first(facts.lines, text) for text in LINES],
        day=f"{datetime.now(UTC):%Y-%m-%d}",
        librdkafka=confluent_kafka.libversion()[0],
        cores=os.cpu_count(),
        changed=CHANGED,
        limit=NEW_LIMIT,
        rate=_rate,
        scrape=SCRAPE_S,
        after=AFTER_S,
        minutes=f"{(facts.seconds + WARM_UP_S) / 60:.1f}",
    )


def _first(lines: Sequence[str], text: str) -> str:
    """Return the first log line of an event. Raises ValueError."""
    found = next((line for line in lines if f"] {text} " in f"{line} "), None)
    if found is None:
        raise ValueError(f"Weir has not logged {text!r}")
    return " ".join(found.split())


def _rate(value: float) -> str:
    """Return a byte rate with two decimals in MB/s."""
    return f"{value / 1e6:.2f}"
