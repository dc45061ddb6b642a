"""`weir pipeline recommend` up to where Spark begins; and the file it writes at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from weir.cli.exits import CommandError
from weir.cli.main import weir
from weir.cli.output_file import write_lines
from weir.pipeline.outcome import Listing, Outcome
from weir.pipeline.recommend.plan import RecommendationPlan
from weir.pipeline.replay.job import ReplayOptions
from weir.quotas import QuotaTable

TIMES: Final = {"held": "12.5", "unsure": "0.0 to unknown", "free": "0.0", "unlimited": None}
"""Throttled time (s) of each budget under the new file."""
KILLED: Final = """
import os, pathlib, signal, sys
from weir.cli.output_file import write_lines

def lines():
    yield "x" * 100_000
    os.kill(os.getpid(), signal.SIGKILL)

write_lines(pathlib.Path(sys.argv[1]), lines(), force=True)
"""
"""A program that is killed when it has written a part of its file."""


@pytest.mark.parametrize(
    ("times", "says"),
    [
        (TIMES, "throttled s of the 2 budgets that new.toml would throttle"),
        ({"free": "0.0"}, "new.toml would throttle nobody"),
    ],
    ids=["two", "nobody"],
)
def test_what_if_shows_whom_the_new_file_would_throttle_in_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: dict[str, str | None], says: str
) -> None:
    """Nobody ran a replay after a recommendation."""
    current, output = tmp_path / "quotas.toml", tmp_path / "new.toml"
    current.write_text('[[quota]]\nuser = "a"\nproducer_byte_rate = 1\nuntil = 2001-01-01T00:00:00Z\n')
    replayed = list[object]()

    def recommended(
        _spark: object, _lake: object, plan: RecommendationPlan, write: Callable[[list[str]], None]
    ) -> Outcome:
        assert plan.current == QuotaTable()  # a proposal would have ended with its entry
        write(["# new"])
        return Outcome("recommend", read={"hours": 1})

    def replay(_spark: object, _lake: object, candidates: list[Path], options: ReplayOptions) -> Outcome:
        replayed.append((candidates, [file.exists() for file in candidates], options.days))
        names = ("cluster", "quota", "user", "client_id", "broker", "recorded", "quotas.toml", "new.toml")
        rows = [
            ("default", "producer_byte_rate", "alice", name, "1", "0.0", "0.0", s)
            for name, s in times.items()
        ]
        listings = (Listing("totals", ("quota",), ()), Listing("top", names, tuple(rows)))
        return Outcome("replay", wrote={"hours": 3}, where={"hours": "lake/replay"}, listings=listings)

    monkeypatch.setattr("weir.pipeline.spark.session", lambda *_, **__: nullcontext(object()))
    monkeypatch.setattr("weir.cli.pipeline.run._watch", lambda *_: None)
    monkeypatch.setattr("weir.pipeline.recommend.job.recommend", recommended)
    monkeypatch.setattr("weir.pipeline.replay.job.replay", replay)
    command = ["pipeline", "recommend", "--lake", str(tmp_path), "--output", str(output), "--what-if"]
    options = ["--current", str(current), "--days", "2026-11-01"]
    done = CliRunner().invoke(weir, [*command, *options])
    assert done.exit_code == 0, done.output
    assert replayed == [([current, output], [True, True], (date(2026, 11, 1), date(2026, 11, 1)))]
    assert says in done.output
    throttled = [name for name, time in times.items() if time not in ("0.0", None)]
    assert [name for name in times if f" {name} " in done.output] == throttled


def misused(tmp_path: Path, *arguments: str) -> str:
    """What is said of arguments that cannot be used: one line; no file is written."""
    output = tmp_path / "new.toml"
    command = ["pipeline", "recommend", "--lake", str(tmp_path), "--output", str(output), *arguments]
    result = CliRunner().invoke(weir, command)
    assert result.exit_code == 2
    assert not output.exists()
    return result.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--days", "yesterday"], "'yesterday' is not FROM..TO, such as 2026-11-01..2026-11-07"),
        (
            ["--days", "2026-11-02..2026-11-01"],
            "'2026-11-02..2026-11-01' ends before it begins: exchange the two",
        ),
        (["--quotas", "producer"], "unknown key 'producer'; did you mean producer_byte_rate?"),
        (["--quotas", "connection_creation_rate"], "quota is connection_creation_rate, must be one of"),
        (
            ["--capacity", "producer_byte_rate=fast"],
            "producer_byte_rate is 'fast', must be a number of bytes, such as",
        ),
        (
            ["--capacity", "producer_byte_rate=-1"],
            "producer_byte_rate is '-1', must be a number of bytes, such as",
        ),
        (["--capacity", "request_percentage=5MB"], "request_percentage is '5MB', must be a plain number"),
        (["--floor", "producer_byte_rate=0.5"], "floor of producer_byte_rate is 0.5, must be from 1 to"),
        (["--headroom", "nan"], "headroom is nan, must be at least 1"),
        (["--current", "/nowhere/quotas.toml"], "/nowhere/quotas.toml: cannot read it: No such file"),
    ],
)
def test_recommend_refuses_wrong_usage_in_one_line_before_reading(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    assert said in misused(tmp_path, *arguments)


def test_recommend_reports_a_mistake_in_the_current_quota_file(tmp_path: Path) -> None:
    current = tmp_path / "quotas.toml"
    current.write_text("[[quota]]\nproducer_byte_rate = 1\n")
    assert f"{current}: [[quota]] entry 1 (line 1): does not say whom" in misused(
        tmp_path, "--current", str(current)
    )
    current.write_bytes(b"\xff")
    assert f"{current}: cannot read it: it is not UTF-8, at byte" in misused(
        tmp_path, "--current", str(current)
    )


def test_recommend_writes_its_file_atomically(tmp_path: Path) -> None:
    file = tmp_path / "quotas.toml"

    def breaks() -> Iterator[str]:
        yield "half\n"
        raise KeyError

    with pytest.raises(KeyError):
        write_lines(file, breaks(), force=False)
    assert list(tmp_path.iterdir()) == []
    write_lines(file, iter(["a\n", "été\n"]), force=False)
    assert file.read_text("utf-8") == "a\nété\n"
    assert file.stat().st_mode & 0o777 == 0o644
    with pytest.raises(CommandError, match="exists already"):
        write_lines(file, ["b\n"], force=False)
    file.chmod(0o600)
    with pytest.raises(KeyError):
        write_lines(file, breaks(), force=True)
    assert file.read_text("utf-8") == "a\nété\n"
    write_lines(file, ["b\n"], force=True)
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("b\n", 0o600)
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_is_whole_after_its_writer_was_killed(tmp_path: Path) -> None:
    file = tmp_path / "new.toml"
    file.write_text("old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(file)], check=False)
    assert (done.returncode, file.read_text()) == (-signal.SIGKILL, "old")
    write_lines(file, ["new"], force=True)
    assert file.read_text() == "new"
