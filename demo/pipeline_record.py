"""Run real clients through Weir for half a minute, and record their usage and every request."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from weir.demo.environment import QUOTAS, WARM_UP_S, environment, running, ticks
from weir.demo.errors import DemoError


class Files(NamedTuple):
    """Paths of the files of one run, all below `directory`."""

    directory: Path

    @property
    def quotas(self) -> Path:
        """Quota file that Weir enforces."""
        return self.directory / QUOTAS

    @property
    def records(self) -> Path:
        """Directory of Weir's usage and trace records."""
        return self.directory / "records"

    @property
    def lake(self) -> Path:
        """Root of the pipeline's tables."""
        return self.directory / "lake"

    @property
    def recommended(self) -> Path:
        """Quota file that `recommend` writes."""
        return self.directory / "recommended.toml"

    @property
    def report(self) -> Path:
        """HTML page that `report` writes."""
        return self.directory / "report.html"


def record(upstream: str | None, seconds: float, files: Files, show: Callable[[str, float], None]) -> None:
    """Run all clients, first at exactly their quotas, then above them. Raises DemoError if a part
    cannot run or Weir wrote no records.

    `show` is called repeatedly with a description of the cluster and the seconds that have passed.
    """
    # Half a minute is too short for intervals of ten seconds.
    usage = {"usage": str(files.records), "usage_interval_ms": 1000, "usage_trace_share": 1.0}
    with environment(upstream, files.directory, usage, enforced=True) as env:
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
        if not any(files.records.glob(f"{kind}-*.jsonl.zst")):
            raise DemoError(
                f"Weir wrote no {kind} records to {files.records}: see weir.log in the same directory"
            )
