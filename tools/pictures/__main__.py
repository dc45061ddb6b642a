"""`python -m tools.pictures [NAME…]`: make the pictures of README and docs, by default all."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import click

from tests.kafka import ClusterError, JarError, JavaMissingError
from tools.pictures import PictureError, cost, rates
from weir.demo.errors import DemoError
from weir.pipeline.outcome import PipelineError

ROOT: Final = Path(__file__).resolve().parents[2]
TABLE: Final = ROOT / "docs/background/performance.md"
IMAGES: Final = ROOT / "docs/images"


def _cost() -> None:
    _write("cost.svg", cost.draw(cost.parse(TABLE.read_text("utf-8"))))


def _demo() -> None:
    from tools.pictures.recording import CLIENT_ID, record  # needs confluent-kafka

    day = f"{datetime.now(UTC):%Y-%m-%d}"
    recording = record()
    footnote = f'Measured {day}: client-id {CLIENT_ID} of "make demo", a quota with pacing = "smooth".'
    _write("before-after.svg", rates.draw(recording.rates(), footnote))


def _groups() -> None:
    from tools.pictures import groups  # needs the tests

    footnote = f'Simulated {datetime.now(UTC):%Y-%m-%d} by tests/quotas/group_world.py, pacing = "smooth".'
    _write("groups.svg", groups.draw(groups.simulate(), footnote))


def _page() -> None:
    from tools.pictures.page import draw  # needs Java and Chromium

    draw(IMAGES)


def _report() -> None:
    from tools.pictures.report import draw  # needs PySpark and Chromium

    for picture in draw(IMAGES):
        print(f"wrote {picture.relative_to(ROOT)}", flush=True)


def _sharing() -> None:
    from tools.pictures import sharing  # needs pytest

    footnote = f"Simulated {datetime.now(UTC):%Y-%m-%d} by tests/quotas/sharing_world.py."
    _write("sharing.svg", sharing.draw(sharing.simulate(), footnote))


def _write(name: str, picture: str) -> None:
    (IMAGES / name).write_text(picture, "utf-8")
    print(f"wrote {(IMAGES / name).relative_to(ROOT)}", flush=True)


PICTURES: Final = {
    "cost": _cost,
    "demo": _demo,
    "groups": _groups,
    "page": _page,
    "report": _report,
    "sharing": _sharing,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(PICTURES)))
def main(names: tuple[str, ...]) -> None:
    """Draw the named pictures, or all. Exit with a message if one cannot be drawn."""
    try:
        for name in names or PICTURES:
            PICTURES[name]()
    except (ClusterError, DemoError, JarError, JavaMissingError, PictureError, PipelineError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
