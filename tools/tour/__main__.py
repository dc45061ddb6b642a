"""The command `python -m tools.tour`."""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import click

import tests.kafka as kafka
from tools.pictures.browser import CHROMIUM, browser
from tools.tour import dashboard, pictures, prometheus, terminal
from tools.tour.scene import scene
from tools.tour.text import Facts, render
from weir.demo.errors import DemoError

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"


@click.command()
@click.option("--seconds", default=180.0, show_default=True, help="Time for which the charts fill.")
@click.option("--kafka", "version", default="4.2.0", show_default=True, help="Version of the broker.")
@click.option(
    "--docs",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    default=DOCS,
    help="Folder for tour.md, and with a folder images. [default: docs]",
)
def main(seconds: float, version: str, docs: Path) -> None:
    """Run Kafka, Weir and four clients; write tour.md and its pictures."""
    if CHROMIUM is None:
        sys.exit("the tour needs a Chromium in the PATH")
    if prometheus.PROMETHEUS is None:
        print("no prometheus in the PATH (Debian: prometheus): the tour leaves the dashboard out", flush=True)
    try:
        with tempfile.TemporaryDirectory(prefix="weir-tour-") as folder:
            facts = _tour(Path(folder), version, seconds, docs / "images")
    except (DemoError, kafka.ClusterError, kafka.JarError, kafka.JavaMissingError) as error:
        sys.exit(str(error))
    (docs / "tour.md").write_text(render(facts), "utf-8")
    print(f"wrote {docs / 'tour.md'}", flush=True)


def _tour(folder: Path, version: str, seconds: float, images: Path) -> Facts:
    with ExitStack() as stack:
        its = stack.enter_context(scene(version, folder))
        metrics = None if prometheus.PROMETHEUS is None else dashboard.scraping(its.address, folder)
        scraped = None if metrics is None else stack.enter_context(metrics)
        tab = stack.enter_context(browser(folder))
        print(f"{its.url} is open for {seconds:g} s and longer", flush=True)
        spans = its.measure(seconds)
        (images / "top.svg").write_text(terminal.draw(its.address), "utf-8")
        load = f"{os.getloadavg()[1]:.1f}"
        throttled = its.waiting()
        pictures.overview(tab, its, images)
        board = None if scraped is None else dashboard.evaluate(scraped)
        previewed = pictures.preview(tab, its, images)
        took_s = pictures.apply(tab, its, images)
        return Facts(
            kafka=version,
            seconds=seconds,
            spans=spans,
            status=its.read("/api/status"),
            throttled=throttled,
            lines=its.lines(),
            previewed=previewed,
            took_s=took_s,
            load=load,
            board=board,
        )


if __name__ == "__main__":
    main()
