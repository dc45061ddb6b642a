"""Half a minute of real clients through Weir, all that they use recorded, each request too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from demo.environment import QUOTAS, WARM_UP_S, environment, running, ticks
from demo.errors import DemoError


class Files(NamedTuple):
    """Where everything of one run is."""

    directory: Path

    @property
    def quotas(self) -> Path:
        """The quotas in force."""
        return self.directory / QUOTAS

    @property
    def records(self) -> Path:
        """What Weir writes."""
        return self.directory / "records"

    @property
    def lake(self) -> Path:
        """The pipeline's tables."""
        return self.directory / "lake"

    @property
    def recommended(self) -> Path:
        """The quotas that are proposed."""
        return self.directory / "recommended.toml"

    @property
    def report(self) -> Path:
        """The page."""
        return self.directory / "report.html"


def record(upstream: str | None, seconds: float, files: Files, show: Callable[[str, float], None]) -> None:
    """Let the cast play, first at just their quotas, then as fast as they can. Raises DemoError.

    `show` hears of the cluster in words, and how many seconds have passed, again and again.
    """
    usage = {"usage_dir": str(files.records), "usage_trace_share": 1.0}
    with environment(upstream, files.directory, usage) as env:
        for client_set in env.client_sets:
            client_set.warm_up()
        with running(env.client_sets):
            for elapsed_s in ticks(seconds):
                if elapsed_s >= WARM_UP_S:
                    for client_set in env.client_sets:
                        client_set.speed_up()
                for client_set in env.client_sets:
                    client_set.read()
                show(env.cluster, elapsed_s)
    for kind in ("usage", "trace"):
        if not any(files.records.glob(f"{kind}-*.jsonl")):
            raise DemoError(f"Weir has left no {kind} records in {files.records}: see weir.log beside it")
