"""Pacing and scope of entries in `weir quotas`: set, list and explain."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import Misused
from tests.cli.quotas_command import done
from weir.quotas import Entity, QuotaKey, QuotaTable, parse

FILE = """\
# Ours.

[[quota]]
user = "alice"  # the export
producer_byte_rate = 500_000
pacing = "smooth"
"""
LATER = "producer_byte_rate = 600_000\nuntil = 2999-01-01T00:00:00Z\n"


def test_quotas_set_keeps_the_pacing_of_an_entry_and_adds_a_scope(file: Path) -> None:
    arguments = ("set", "--quotas", str(file), "--user", "alice")
    done(*arguments, "producer_byte_rate=600000")
    assert file.read_text() == FILE.replace("500_000", "600000")
    said = done(*arguments, "--scope", "cluster", "producer_byte_rate=600000")
    assert "pacing smooth, scope cluster\n" in said
    assert file.read_text() == FILE.replace("500_000", "600000") + 'scope = "cluster"\n'
    done(*arguments, "--pacing", "default", "--scope", "broker", "producer_byte_rate=500000")
    assert file.read_text() == FILE.replace("500_000", "500000").replace('pacing = "smooth"\n', "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--ip", "10.0.0.7", "--pacing", "smooth", "connection_creation_rate=5"),
        ("--topic-prefix", "pay.", "--scope", "cluster", "topics_max=5"),
    ],
)
def test_quotas_set_refuses_options_of_what_has_no_budgets(
    file: Path, misused: Misused, arguments: tuple[str, ...]
) -> None:
    line = misused("quotas", "set", "--quotas", str(file), *arguments)
    assert "have no pacing and no scope" in line


def test_quotas_explain_tells_pacing_and_scope(file: Path) -> None:
    done("set", "--quotas", str(file), "--user", "alice", "--scope", "cluster", "request_percentage=50")
    said = done("explain", "--quotas", str(file), "--user", "alice")
    assert said.count("pacing: smooth") == 1
    assert said.count("at all brokers together") == 2
    charges = json.loads(done("explain", "--quotas", str(file), "--user", "alice", "--json"))["charges"]
    found = {charge["key"]: charge for charge in charges}
    produce, time = found["producer_byte_rate"], found["request_percentage"]
    assert (produce["pacing"], produce["scope"]) == ("smooth", "cluster")
    assert (time.get("pacing"), time["scope"]) == (None, "cluster")
    assert "scope" not in found["consumer_byte_rate"]


def test_quotas_set_gives_an_entry_an_end_and_replaces_one_that_has_ended(
    file: Path, monkeypatch: pytest.MonkeyPatch, misused: Misused
) -> None:
    for module in ("change", "show"):
        now = partial(datetime, 2026, 12, 1, 2, tzinfo=UTC)
        monkeypatch.setattr(f"weir.cli.quotas.{module}.now_utc", now)
    arguments = ("--quotas", str(file), "--user", "alice")
    said = done("set", *arguments, "--for", "4h", "producer_byte_rate=500000")
    assert "pacing smooth, scope broker, until 2026-12-01T06:00:00Z\n" in said
    assert file.read_text() == FILE + "until = 2026-12-01T06:00:00Z\n"
    assert "enforce, smooth, until 2026-12-01T06:00:00Z\n" in done("list", "--quotas", str(file))
    as_before = "ends at 2026-12-01T06:00:00Z, as before; --until never: it does not end\n"
    assert as_before in done("set", *arguments, "--dry-run", "consumer_byte_rate=7")
    assert "as before" not in done("set", *arguments, "--until", "never", "producer_byte_rate=500000")
    assert file.read_text() == FILE
    file.write_text(FILE + "until = 2026-12-01T01:00:00Z\n")
    assert "until 2026-12-01T01:00:00Z, ended\n" in done("list", "--quotas", str(file))
    done("set", *arguments, "consumer_byte_rate=7")
    assert parse(file.read_text()) == QuotaTable({(Entity("alice"), QuotaKey.CONSUMER_BYTE_RATE): 7.0})
    for options, line in (
        (("--until", "2026-12-01T06:00:00"), "must be a time with its zone, such as 2026-12-01T06:00:00Z"),
        (("--for", "soon"), "--for is 'soon', must be a number of seconds, or a duration"),
        (("--for", "4h", "--until", "never"), "either --for or --until"),
        (("--until", "2026-12-01T02:00:00Z"), "must be later than now, 2026-12-01T02:00:00Z"),
        (("--for", "0s"), "--for is '0s', must be later than now"),
        (("--for", "99999999h"), "--for is '99999999h', must be a time before the year 10000"),
    ):
        assert line in misused("quotas", "set", *arguments, *options, "producer_byte_rate=5")


def test_quotas_set_ends_no_value_that_it_does_not_name(file: Path, misused: Misused) -> None:
    arguments = ("--quotas", str(file), "--user", "alice", "--for", "4h", "consumer_byte_rate=9MB")
    line = misused("quotas", "set", *arguments)
    assert "producer_byte_rate of user alice would end, too; name it in the same change" in line
    assert file.read_text() == FILE
    done("set", *arguments, "producer_byte_rate=500000")
    done("set", *arguments)  # all its values have an end


def test_quotas_explain_tells_the_ends_of_entries(file: Path) -> None:
    file.write_text(f'{FILE}until = 2001-01-01T00:00:00Z\n\n[[quota]]\nuser = "<default>"\n{LATER}')
    said = done("explain", "--quotas", str(file), "--user", "alice")
    assert [" ".join(line.split()) for line in said.splitlines() if "Z" in line] == [
        "user alice 500000 ended 2001-01-01T00:00:00Z",
        "user <default> 600000 wins, until 2999-01-01T00:00:00Z",
    ]
