"""`weir check`: every mistake at once, and warnings, without a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner

from weir.cli.exits import DONE, USAGE
from weir.cli.main import weir
from weir.quotas.table import entry_places, quota_check

FILE = """\
upstream = "kafka"
listen = "19092"
quota_mode = "wait"
connections_max = 0
nonsense = 1
quotas = "quotas.toml"
usage = "usage"
upstream_cert = "cert.pem"
quota_admins = "alice"
"""
QUOTAS = """\
[[quota]]
user = "User:alice"
producer_byte_rate = 1000

[[quota]]
client_id = "*"
producer_byte_rate = 1000

[[quota]]
client_id = "app"
producer_byte_rat = 1000

[[quota]]
client_id = "etl-*"
consumer_byte_rate = "1 lot"
"""


def report(code: int, *arguments: str) -> dict[str, list[str]]:
    result = CliRunner().invoke(weir, ["check", "--json", *arguments])
    assert result.exit_code == code, result.output
    found: dict[str, list[str]] = json.loads(result.stdout)
    return found


def test_check_reports_all_mistakes_of_all_files_at_once(tmp_path: Path) -> None:
    file, quotas = tmp_path / "weir.toml", tmp_path / "quotas.toml"
    file.write_text(FILE)
    quotas.write_text(QUOTAS)
    found = report(USAGE, "--config", str(file))
    expected = [
        f"{file}: quota_mode is 'wait', must be one of enforce, shadow",
        f"{file}: connections_max is 0, must be greater than 0",
        f"{file}: unknown key nonsense",
        "upstream is 'kafka', must be HOST:PORT",
        "listen is '19092', must be HOST:PORT",
        "quota_admins has 'alice', must be User:NAME",
        "upstream_cert is set, but brokers are spoken to in TLS only with upstream_tls",
        f'{quotas}: [[quota]] entry 3 (line 11): unknown key "producer_byte_rat"',
        f"{quotas}: [[quota]] entry 4 (line 15): consumer_byte_rate must be a number of bytes",
    ]
    assert len(found["mistakes"]) == len(expected), found["mistakes"]
    for text, beginning in zip(found["mistakes"], expected, strict=True):
        assert text.startswith(beginning)
    assert found["warnings"] == [
        f'{quotas}: [[quota]] entry 1 (line 1): no client is user "User:alice"; leave out User:',
        f'{quotas}: [[quota]] entry 2 (line 5): no client has client_id "*"; write client_id = "<default>"',
    ]


def test_check_succeeds_with_warnings_only(tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.toml"
    entry = '[[quota]]\nclient_id = "etl-*"\nconsumer_byte_rate = 5\n'
    prefix = '[[quota]]\ntopic_prefix = "tmp*"\ntopics_max = 1\n'
    quotas.write_text(f"{entry}until = 1999-12-31T23:00:00-01:00\n{prefix}")
    result = CliRunner().invoke(weir, ["check", "--quotas", str(quotas)])
    assert result.exit_code == DONE
    line, ended, pattern = result.stdout.splitlines()
    assert pattern.endswith('topic_prefix "tmp*" is no pattern; leave out the *')
    assert line.startswith(f"warning: {quotas}: [[quota]] entry 1")
    assert 'write client_id_prefix = "etl-"' in line
    assert ended.endswith("entry 1 (line 1): it has ended at 2000-01-01T00:00:00Z; remove it")
    assert "0 mistakes, 3 warnings\n" in result.stderr


def test_check_warns_of_storage_budgets_that_throttle_nobody_or_need_a_login(tmp_path: Path) -> None:
    quotas = tmp_path / "quotas.toml"
    entries = 'topic = "t"\nstored_bytes_max = "2TB"\n', 'group = "<all>"\nover_byte_rate = "64KB"\n'
    quotas.write_text("".join(f"[[quota]]\n{entry}" for entry in entries))
    half = [
        f"{quotas}: [[quota]] entry {place}"
        for place in (
            "1 (line 1): stored_bytes_max is only told, and throttles nobody; add over_byte_rate",
            "2 (line 4): over_byte_rate has no effect alone; add stored_bytes_max or usable_bytes_min",
        )
    ]
    assert report(DONE, "--quotas", str(quotas))["warnings"] == half
    *first, login = report(DONE, "--quotas", str(quotas), "--upstream", "a:1")["warnings"]
    assert first == half
    assert login.startswith(f"{quotas}: [[quota]] entry 1 (line 1): a storage budget needs a login of Weir's")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "no upstream"),
        (["--quotas", "topic"], "no upstream"),
        (["--upstream", "a:1", "--quotas", "no/such.toml"], "no/such.toml: cannot read the quota file"),
        (["--upstream", "a:1", "--set", "state_dir=/dev/null/s"], "state_dir /dev/null/s: /dev/null is no"),
        (["--upstream", "a:1", "--set", "usage=/dev/null/usage"], "/dev/null is no directory"),
        (["--config", "no/such/file"], "no/such/file: cannot read the configuration"),
    ],
)
def test_check_reports_what_only_a_start_would_show(arguments: list[str], words: str) -> None:
    (mistake,) = report(USAGE, *arguments)["mistakes"]
    assert words in mistake


def test_check_reads_the_tls_files(tmp_path: Path) -> None:
    file = tmp_path / "weir.pem"
    file.write_text("no certificate")
    (mistake,) = report(USAGE, "--upstream", "a:1", "--set", f"tls_cert={file}")["mistakes"]
    assert f"tls_cert {file} cannot be used" in mistake
    trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(file))
    assert report(DONE, "--upstream", "a:1", "--set", f"tls_cert={file}")["mistakes"] == []


def test_check_takes_no_mistake_for_the_cause_of_another(tmp_path: Path) -> None:
    file = tmp_path / "weir.toml"
    file.write_text("upstream = 3\n")
    (mistake,) = report(USAGE, "--config", str(file))["mistakes"]
    assert mistake == f"{file}: upstream is 3, must be text in quotes"


def test_check_warns_of_an_environment_variable_that_is_almost_one_of_weirs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WEIR_BROKER_PORT", "9100-9120")
    monkeypatch.setenv("WEIR_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("WEIR_PORT_19092_TCP", "tcp://10.0.0.1:19092")
    (warning,) = report(DONE, "--upstream", "a:1")["warnings"]
    assert warning.endswith("WEIR_BROKER_PORT has no effect: did you mean WEIR_BROKER_PORTS?")


def test_a_file_of_mistakes_and_warnings_is_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[str] = []
    entry_spans = entry_places.entry_spans

    def searched(lines: list[str], kind: str) -> list[entry_places.EntryLines]:
        searches.append(kind)
        return entry_spans(lines, kind)

    monkeypatch.setattr(entry_places, "entry_spans", searched)
    wrong = '[[quota]]\nuser = "User:a{0}"\nproducer_byte_rate = 1\n\n[[quota]]\nuser = "b{0}"\nrate = 1\n'
    found = quota_check.check("".join(map(wrong.format, range(50))))
    assert (len(found.mistakes), len(found.warnings), len(searches)) == (50, 50, 1)
