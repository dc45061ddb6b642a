"""`weir pipeline …` over nothing, and over malformed lines."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.pipeline.conftest import CommandsHere

pytestmark = pytest.mark.spark

LOCAL = ("--master", "local[2]")
NOTHING = {
    ("ingest", "--once", "--files", "DIRECTORY/empty"): "nothing new",
    ("rollup",): "no usage",
    ("recommend", "--output", "new.toml"): "no usage of cluster default: new.toml is not written",
    ("replay", "quotas.toml"): "nothing to replay",
    ("report", "--output", "report.html"): "weir pipeline ingest",
}
"""Jobs, and what they say where there is nothing."""


def test_pipeline_commands_run_over_empty_and_malformed_input(
    commands_here: CommandsHere, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "lake").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "usage-a-00000001.jsonl").write_text('no json\n{"version":1}\n{"version":99}\n[]\n')
    (tmp_path / "quotas.toml").write_text('[[quota]]\nclient_id = "a"\nproducer_byte_rate = 1\n')
    lake, of_bad = str(tmp_path / "lake"), str(tmp_path / "lake-of-bad")
    # Java, which has started before, does not know the working directory.
    jobs = [[word.replace("DIRECTORY", str(tmp_path)) for word in job] for job in NOTHING]
    over_nothing = [("pipeline", *job, *LOCAL, "--lake", lake) for job in jobs]
    over_bad = [
        (
            "pipeline",
            "ingest",
            "--files",
            str(tmp_path / "bad"),
            "--once",
            "--json",
            *LOCAL,
            "--lake",
            of_bad,
        ),
        ("pipeline", "rollup", "--json", *LOCAL, "--lake", of_bad),
    ]
    ended = commands_here([*over_nothing, *over_bad], tmp_path)
    assert [(done.exit_code, done.errors) for done in ended] == [(0, "")] * 7
    for done, line in zip(ended, NOTHING.values(), strict=False):
        assert line in done.output
    assert not (tmp_path / "new.toml").exists()
    ingested, rolled_up = (msgspec.json.decode(done.output) for done in ended[len(NOTHING) :])
    assert ingested["read"]["usage lines"] == ingested["wrote"]["rejected usage"] == 4
    assert ingested["wrote"]["usage records"] == rolled_up["read"]["records"] == 0
