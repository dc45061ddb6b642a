"""`weir pipeline …`, one command after the other, as an operator runs them: over records, over nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from tests.integration.pipeline_jobs import commands, rows
from tests.proxy.usage_rigs import text_of
from weir.cli.main import weir
from weir.demo.client_specs import CLIENTS
from weir.demo.pipeline_record import Files, record
from weir.quotas import QuotaKey, parse

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]  # five times Java, on a busy machine

SECONDS = 4.0
LOCAL = ("--master", "local[2]")


@pytest.mark.core
def test_pipeline_commands_run_one_after_the_other_over_real_records(tmp_path: Path) -> None:
    files = Files(tmp_path)
    record(None, SECONDS, files, lambda _cluster, _elapsed_s: None)
    lines = sum(len(text_of(path).splitlines()) for path in files.records.glob("usage-*.jsonl.zst"))

    lake, current, new = files.lake, str(files.quotas), str(files.recommended)
    jobs = [
        ("ingest", "--files", str(files.records), "--once"),
        ("rollup",),
        ("recommend", "--output", new, "--current", current),
        ("replay", current, new),
        ("report", "--output", str(files.report)),
    ]
    of_all = (*LOCAL, "--lake", str(lake), "--json")
    ended = commands(*(("pipeline", *job, *of_all) for job in jobs), directory=tmp_path)
    assert [(done.exit_code, done.errors) for done in ended] == [(0, "")] * len(jobs)
    ingested, rolled_up, _, replayed, _ = (msgspec.json.decode(done.output) for done in ended)
    assert ingested["wrote"]["usage records"] == lines == len(rows(lake, "usage"))
    assert rolled_up["read"]["records"] == replayed["read"]["records"] == lines
    assert all(spec.client_id in files.report.read_text() for spec in CLIENTS)

    proposed = parse(files.recommended.read_text())
    assert {key for _entity, key in proposed.values} >= {
        QuotaKey.PRODUCER_BYTE_RATE,
        QuotaKey.CONSUMER_BYTE_RATE,
    }
    listed = CliRunner().invoke(weir, ["quotas", "list", "--quotas", str(files.recommended)])
    assert listed.exit_code == 0
    assert "producer_byte_rate" in listed.output


NOTHING = {
    ("ingest", "--files", "empty", "--once"): "nothing new",
    ("rollup",): "no usage",
    ("recommend", "--output", "new.toml"): "no usage of cluster default: new.toml is not written",
    ("replay", "quotas.toml"): "nothing to replay",
    ("report", "--output", "report.html"): "weir pipeline ingest",
}
"""Jobs, and what they say where there is nothing."""


def test_pipeline_commands_run_over_empty_and_malformed_input(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "lake").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "usage-a-00000001.jsonl").write_text('no json\n{"version":1}\n{"version":99}\n[]\n')
    (tmp_path / "quotas.toml").write_text('[[quota]]\nclient_id = "a"\nproducer_byte_rate = 1\n')
    over_nothing = [("pipeline", *job, *LOCAL, "--lake", "lake") for job in NOTHING]
    over_bad = [
        ("pipeline", "ingest", "--files", "bad", "--once", "--json", *LOCAL, "--lake", "lake-of-bad"),
        ("pipeline", "rollup", "--json", *LOCAL, "--lake", "lake-of-bad"),
    ]
    ended = commands(*over_nothing, *over_bad, directory=tmp_path)
    assert [(done.exit_code, done.errors) for done in ended] == [(0, "")] * 7
    for done, line in zip(ended, NOTHING.values(), strict=False):
        assert line in done.output
    assert not (tmp_path / "new.toml").exists()
    ingested, rolled_up = (msgspec.json.decode(done.output) for done in ended[len(NOTHING) :])
    assert ingested["read"]["usage lines"] == ingested["wrote"]["rejected usage"] == 4
    assert ingested["wrote"]["usage records"] == rolled_up["read"]["records"] == 0
