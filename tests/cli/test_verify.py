"""`weir verify` as a command: its output, exit codes and files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from tests.conformance.batches import batch, changed
from tests.conformance.captures import answered, produce, produced, sent
from weir.cli.main import weir
from weir.conformance.capture import CaptureWriter, Run
from weir.conformance.verify import RULES

if TYPE_CHECKING:
    from pathlib import Path


def verify(*options: str | Path) -> Result:
    return CliRunner().invoke(weir, ["verify", *map(str, options)])


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """A producer that writes wrong checksums, twice, and is answered."""
    return written(tmp_path / "wrong.weircap", changed(batch(), right_crc=False, crc=1))


def written(path: Path, records: bytes, *, blanked: bool = False) -> Path:
    with CaptureWriter(path, Run(time_ns=0, source="test", blanked=blanked)) as writer:
        for number in range(2):
            writer.write(sent(produce(records, 9, number), number))
            writer.write(answered(produced(9, number), number))
    return path


def test_verify_groups_equal_findings_and_exits_with_1(capture: Path) -> None:
    result = verify(capture)
    assert result.exit_code == 1, result.output
    assert (
        "error batch-crc, 2 times: Produce v9 topic_data[0].partition_data[0].records.batch[0].crc"
        in result.output
    )
    assert result.output.endswith("2 error\n")


def test_verify_exits_with_0_without_findings(tmp_path: Path) -> None:
    result = verify(written(tmp_path / "right.weircap", batch()))
    assert (result.exit_code, result.output) == (0, "no findings\n")


def test_verify_without_a_rule_does_not_find_it(capture: Path) -> None:
    assert verify(capture, "--without", "batch-crc").exit_code == 0
    assert verify(capture, "--without", "nonsense").exit_code == 2


def test_verify_fails_only_for_findings_that_the_baseline_lacks(capture: Path, tmp_path: Path) -> None:
    baseline = tmp_path / "known.json"
    baseline.write_text(verify(capture, "--json").stdout)
    assert json.loads(baseline.read_text())["findings"][0]["count"] == 2
    known = verify(capture, "--baseline", baseline)
    assert (known.exit_code, "(in the baseline)" in known.output) == (0, True)
    other = written(tmp_path / "other.weircap", changed(batch(), count=9))
    assert verify(capture, other, "--baseline", baseline).exit_code == 1


def test_verify_does_not_compare_the_checksums_of_blanked_records(tmp_path: Path) -> None:
    blank = batch()[:61] + bytes(len(batch()) - 61)
    assert verify(written(tmp_path / "blank.weircap", blank, blanked=True)).exit_code == 0


def test_verify_writes_a_junit_test_for_each_rule(capture: Path, tmp_path: Path) -> None:
    report = tmp_path / "junit.xml"
    verify(capture, "--junit", report, "--without", "batch-timestamps")
    suite = ET.parse(report).getroot()  # noqa: S314  # our own file
    assert len(suite) == len(RULES) == int(suite.get("tests", 0))
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    skipped = [case.get("name") for case in suite if case.find("skipped") is not None]
    assert (failed, skipped) == (["batch-crc"], ["batch-timestamps"])


def test_verify_refuses_files_that_are_no_capture_or_no_baseline(capture: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"not a capture at all, and no JSON" * 9)
    assert verify(other).exit_code == 2
    assert verify(tmp_path / "missing").exit_code == 2
    assert verify(capture, "--baseline", other).exit_code == 2
