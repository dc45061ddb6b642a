"""`weir quotas import`, from a dump of znodes: where quotas go, what is told of the rest."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from tests.cli.conftest import Misused
from tests.cli.quotas_command import done, failed, run
from weir.cli.exits import DONE, INCOMPLETE, USAGE
from weir.quotas import Entity, QuotaKey, QuotaTable, parse

SCRAM = '"SCRAM-SHA-256":"salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"'
ALICE, ODD, APP = Entity("alice"), Entity("CN=a\nb", "app"), Entity(client_id="app")
PRODUCE, FETCH = QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE
TABLE = QuotaTable({(ALICE, PRODUCE): 1024.0, (ODD, FETCH): 5.0, (ODD, QuotaKey.REQUEST_PERCENTAGE): 12.5})


def config(written: str) -> str:
    return f'{{"version":1,"config":{{{written}}}}}'


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    clients = tmp_path / "dump/config/users/CN%3Da%0Ab/clients"
    clients.mkdir(parents=True)
    (tmp_path / "dump/config/users/alice").write_text(config(f'{SCRAM},"producer_byte_rate":"1024"'))
    (clients / "app").write_text(config('"consumer_byte_rate":"5","request_percentage":"12.5"'))
    return tmp_path / "dump"


@pytest.fixture
def flawed(dump: Path) -> Path:
    (dump / "config/users/bob").write_text(config(f'{SCRAM},"request_percentage":"0"'))
    (dump / "config/users/carol").write_text("{")
    return dump


OF_BOB = "request_percentage of user bob must be a finite number above 0, not 0.0"


def imported(*arguments: object) -> tuple[int, str, str]:
    result = run("import", *map(str, arguments))
    assert "stored_key" not in result.output
    return result.exit_code, result.stdout, result.stderr


def test_import_lists_skipped_quotas_and_exits_with_incomplete(flawed: Path) -> None:
    exit_code, out, err = imported("--dump", flawed)
    assert exit_code == INCOMPLETE
    assert parse(out) == TABLE
    of_bob = f"/config/users/bob: request_percentage: {OF_BOB}"
    of_carol = "/config/users/carol: cannot be read: Input data was truncated"
    assert f"\n# Left out: {of_bob}\n# Left out: {of_carol}\n\n" in out
    assert err.splitlines() == [
        f"skipped {of_bob}",
        f"skipped {of_carol}",
        f"{flawed}: 4 nodes read, 3 quotas of 2 entities, 2 skipped",
        "2 SCRAM credentials are no quotas, and were left alone",
    ]


def test_import_prints_quotas_and_skipped_nodes_as_json(flawed: Path) -> None:
    exit_code, out, _err = imported("--dump", flawed, "--json")
    assert exit_code == INCOMPLETE
    assert json.loads(out) == {
        "origin": str(flawed),
        "quotas": [
            {"entity": {"user": "alice"}, "mode": "enforce", "quotas": {"producer_byte_rate": 1024}},
            {
                "entity": {"user": "CN=a\nb", "client_id": "app"},
                "mode": "enforce",
                "quotas": {"consumer_byte_rate": 5, "request_percentage": 12.5},
            },
        ],
        "skipped": [
            {"where": "/config/users/bob", "key": "request_percentage", "reason": OF_BOB},
            {
                "where": "/config/users/carol",
                "key": None,
                "reason": "cannot be read: Input data was truncated",
            },
        ],
        "nodes": 4,
        "credentials": 2,
        "output": None,
        "dry_run": False,
        "changes": None,
    }


def test_import_replaces_an_output_file_only_with_force(dump: Path, tmp_path: Path) -> None:
    output = tmp_path / "new.toml"
    exit_code, out, err = imported("--dump", dump, "--output", output)
    assert (exit_code, out) == (DONE, "")
    assert parse(output.read_text()) == TABLE
    assert err.splitlines()[-1] == f"written to {output}"
    output.write_text("mine")
    arguments = ("import", "--dump", str(dump), "--output", str(output))
    assert failed(USAGE, *arguments) == f"{output} exists already: choose another, or --force to replace it"
    assert output.read_text() == "mine"
    output.chmod(0o600)
    done(*arguments, "--force")
    assert parse(output.read_text()) == TABLE
    assert output.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.glob(".new*")) == []
    output.unlink()
    done(*arguments, "--force")
    assert output.stat().st_mode & 0o777 == 0o644


def test_import_reports_an_output_file_that_cannot_be_written(dump: Path, tmp_path: Path) -> None:
    output = tmp_path / "missing" / "new.toml"
    exit_code, _out, err = imported("--dump", dump, "--output", output)
    message = f"weir: {output}: cannot write it: No such file or directory\n"
    assert (exit_code, err) == (USAGE, message)
    assert imported("--dump", dump, "--output", output, "--force")[2] == message


def test_import_applied_to_a_file_keeps_its_other_quotas(dump: Path, tmp_path: Path) -> None:
    file = tmp_path / "quotas.toml"
    file.write_text('# ours\n[[quota]]\nuser = "alice"\nproducer_byte_rate = 1\nconsumer_byte_rate = 2\n')
    before = parse(file.read_text())
    exit_code, out, err = imported("--dump", dump, "--apply", "--quotas", file, "--dry-run")
    assert (exit_code, parse(file.read_text())) == (DONE, before)
    assert out.splitlines()[:2] == [
        "user alice: producer_byte_rate 1 -> 1024 (1 KiB/s)",
        "user CN=a\\nb, client-id app: consumer_byte_rate none -> 5",
    ]
    assert "+producer_byte_rate = 1024" in out
    exit_code, out, err = imported("--dump", dump, "--apply", "--quotas", file)
    assert exit_code == DONE
    assert err.splitlines()[0] == f"changed {file}: a running Weir follows it within two seconds"
    assert file.read_text().startswith("# ours\n")
    assert parse(file.read_text()) == before.altered(TABLE.values)
    _exit_code, out, _err = imported("--dump", dump, "--apply", "--quotas", file, "--json")
    changes = [(one["before"], one["after"]) for one in json.loads(out)["changes"]]
    assert changes == [(1024, 1024), (5, 5), (12.5, 12.5)]


def test_import_sums_many_skipped_quotas_on_stderr_and_lists_them_in_the_file(dump: Path) -> None:
    for number in range(60):
        (dump / f"config/users/u{number:02}").write_text("{")
    _exit_code, out, err = imported("--dump", dump)
    assert out.count("# Left out: ") == 60
    assert err.count("skipped /config/users/") == 50
    assert "skipped 10 more: " in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--dump a --zookeeper b:1", "one of FILE, --upstream, --zookeeper and --dump at a time"),
        ("--dump a --output b --apply", "either --output or --apply"),
        ("--dump a --dry-run", "--dry-run goes with --apply"),
        ("--dump a --quotas b", "--quotas goes with --apply"),
        ("--dump a --apply", "which quotas? give --quotas FILE, or --config weir.toml"),
        ("--output b --apply", "either --output or --apply"),
    ],
)
def test_import_refuses_wrong_usage(arguments: str, words: str, misused: Misused) -> None:
    assert words in misused("quotas", "import", *arguments.split())


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_import_reports_an_unreadable_source_in_one_line(tmp_path: Path) -> None:
    assert "no dump of Kafka's nodes" in failed(USAGE, "import", "--dump", str(tmp_path))
    assert "gone: cannot read it: No such file" in failed(USAGE, "import", str(tmp_path / "gone"))
    place = f"127.0.0.1:{closed_port()}"
    zookeeper = ("import", "--timeout-s", "0.2", "--zookeeper")
    assert failed(USAGE, *zookeeper, place) == f"{place}: connection refused: check --zookeeper"
    assert "must be HOST:PORT[/CHROOT]" in failed(USAGE, *zookeeper, "a:b")
    assert "connection refused" in failed(USAGE, "import", "--upstream", place)
    assert "no upstream" in failed(USAGE, "import")


def test_import_tells_a_silent_zookeeper_from_one_that_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        command = ("import", "--timeout-s", "200ms", "--zookeeper", place)
        assert failed(USAGE, *command) == f"{place}: no answer within 0.2 s"


@pytest.mark.parametrize("content", ["", "weir", "a:b\nc:d"])
def test_import_reports_a_digest_file_without_a_digest(tmp_path: Path, content: str) -> None:
    file = tmp_path / "digest"
    file.write_text(content)
    command = ("import", "--zookeeper", "127.0.0.1:1", "--zookeeper-digest", str(file))
    assert failed(USAGE, *command) == f"--zookeeper-digest {file}: must hold USER:PASSWORD, and nothing else"
    file.unlink()
    assert "cannot read it: No such file" in failed(USAGE, *command)
