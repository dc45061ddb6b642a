"""`weir verify` as a command: its output, exit codes and files."""

from __future__ import annotations

import io
import json
import re
from contextlib import redirect_stdout
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from tests.conformance.batches import batch, changed
from tests.conformance.captures import answered, produce, produced, sent
from tests.conformance.report.samples import finding
from weir.cli.main import weir
from weir.cli.verify_show import show
from weir.conformance.capture import CaptureWriter, Run
from weir.conformance.events import Opened
from weir.conformance.report import Checked, FindingGroup, VerifyReport
from weir.conformance.verify import RULES


def verify(*options: str | Path) -> Result:
    return CliRunner().invoke(weir, ["verify", *map(str, options)])


@pytest.fixture
def capture(tmp_path: Path) -> Path:
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
    assert re.search(r"\n4 frames of 1 connection checked, [\d.]+ k?B: 2 errors\n$", result.output)


def test_verify_of_a_capture_without_a_frame_is_no_success(tmp_path: Path) -> None:
    empty = tmp_path / "empty.weircap"
    with CaptureWriter(empty, Run(time_ns=0, source="test")) as writer:
        writer.write(Opened(1, 0, "a:1", "b:2"))
    result = verify(empty)
    assert result.exit_code == 2
    assert result.stdout == "0 frames of 1 connection checked, 0 B: no frame was checked\n"
    assert f"weir: {empty}: no frame in this capture, so nothing was checked" in result.stderr
    right = written(tmp_path / "right.weircap", batch())
    assert verify(right, empty).exit_code == 2, "also beside one that has frames"


def test_verify_reports_errors_rather_than_an_empty_capture_beside_them(
    capture: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty.weircap"
    with CaptureWriter(empty, Run(time_ns=0, source="test")):
        pass
    assert verify(empty, capture).exit_code == 1


def test_verify_json_has_the_frames_that_were_checked(capture: Path) -> None:
    checked = json.loads(verify(capture, "--json").stdout)["checked"]
    assert (checked["connections"], checked["frames"], checked["captures"]) == (1, 4, [str(capture)])
    size = 2 * (len(produce(batch())) + len(produced()))
    assert checked["bytes"] == size
    (api,) = checked["apis"]
    assert (api["api"], api["version"], api["requests"], api["responses"]) == ("Produce", 9, 2, 2)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_verify_escapes_texts_of_peers_in_a_pipe(tmp_path: Path) -> None:
    hostile = FindingGroup(finding(found="\x1b[2J\u202e"), 1, new=True, capture="\x1b]0;title\x07")
    with redirect_stdout(io.StringIO()) as out:
        show(VerifyReport([hostile], Checked(["a"], 1, 1, 1, [])))
    assert r"\x1b[2J\u202e" in out.getvalue()
    assert out.getvalue().replace("\n", "").isprintable()


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


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"findings": [], "x": ' + b"[" * 100_000, "not an output of weir verify --json: "),
        (b'{"findings": [{"first": {"api": "\xff"}}]}', "it is not UTF-8, at byte 33: "),
    ],
)
def test_a_baseline_of_deep_json_or_other_text_is_refused(
    capture: Path, tmp_path: Path, data: bytes, said: str
) -> None:
    baseline = tmp_path / "known.json"
    baseline.write_bytes(data)
    result = verify(capture, "--baseline", baseline)
    assert result.exit_code == 2
    assert f"known.json: {said}" in result.output
