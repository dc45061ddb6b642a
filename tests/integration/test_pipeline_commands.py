"""`weir pipeline …`, one command after the other, as an operator runs them."""

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
