"""Half a minute of real clients through Weir, all that they use recorded, each request too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from demo.errors import DemoError
from demo.stage import QUOTAS, WARM_UP_S, playing, stage, ticks


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
    with stage(upstream, files.directory, usage) as set_up:
        for part in set_up.parts:
            part.warm_up()
        with playing(set_up.parts):
            for elapsed_s in ticks(seconds):
                if elapsed_s >= WARM_UP_S:
                    for part in set_up.parts:
                        part.speed_up()
                for part in set_up.parts:
                    part.read()
                show(set_up.cluster, elapsed_s)
    for kind in ("usage", "trace"):
        if not any(files.records.glob(f"{kind}-*.jsonl")):
            raise DemoError(f"Weir has left no {kind} records in {files.records}: see weir.log beside it")
