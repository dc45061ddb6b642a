"""`weir pipeline report`: what is refused before Spark is started."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from weir.cli.exits import USAGE
from weir.cli.main import weir


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(weir, ["pipeline", "report", "--lake", "nowhere", *arguments])
    assert result.exit_code == USAGE
    return result.stderr


def test_report_does_not_replace_an_existing_file_without_force(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text("mine")
    assert refused("--output", str(page)) == (
        f"weir: {page} exists already: choose another, or --force to replace it\n"
    )
    assert page.read_text() == "mine"
