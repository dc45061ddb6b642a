"""`weir pipeline ingest`: options that do not go together, and files of properties. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from weir.cli.exits import CommandError
from weir.cli.pipeline.ingest import _properties, ingest


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--files", "d", "--topic", "t", "--bootstrap-servers", "b:1"],
        ["--files", "d", "--bootstrap-servers", "b:1"],
        ["--topic", "t"],
        ["--bootstrap-servers", "b:1"],
    ],
)
def test_ingest_takes_exactly_one_source(options: list[str]) -> None:
    done = CliRunner().invoke(ingest, ["--lake", "lake", *options])
    assert done.exit_code == 2
    assert "say where from: either --files DIR, or --topic TOPIC with --bootstrap-servers" in done.output


def test_a_malformed_property_line_is_named_without_its_text(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("a=b\nsecret\n")
    with pytest.raises(CommandError, match=r"client\.properties:2: expected key=value") as error:
        _properties(path)
    assert "secret" not in str(error.value)


def test_a_missing_properties_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"none: .*No such file"):
        _properties(tmp_path / "none")


@pytest.mark.parametrize("option", ["--every"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_ingest_refuses_nan_and_inf_as_seconds(option: str, value: str) -> None:
    done = CliRunner().invoke(ingest, ["--lake", "lake", "--files", "d", option, value])
    assert done.exit_code == 2
    assert f"{value} is not in the range >= 0 (s)" in done.output
