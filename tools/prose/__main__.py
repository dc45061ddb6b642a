"""The command `python -m tools.prose [PAGE ...]`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tools.prose import findings

ROOT = Path(__file__).parents[2]


def pages() -> list[Path]:
    """Return the paths of all pages of the documentation."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@click.command()
@click.argument("page", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def main(page: tuple[Path, ...]) -> None:
    """Print the sentences of over 25 words and the lines of over 120 characters of these pages, or of all
    pages.

    Exit with 1 if there are any, else with 0.
    """
    found = 0
    for path in page or pages():
        for finding in findings(path.read_text("utf-8")):
            click.echo(f"{path}:{finding}")
            found += 1
    click.echo(f"{found} findings", err=True)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
