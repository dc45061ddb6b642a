"""`weir quotas list`, `set` and `delete`, on a quota file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Misused
from tests.cli.quotas_command import done, failed, run
from weir.cli.exits import DONE, FAILED, USAGE

FILE = """\
# Ours.

[[quota]]
user = "alice"
client_id = "app"
producer_byte_rate = 500_000  # for now

[[quota]]
client_id = "<default>"
producer_byte_rate = 2_097_152
controller_mutation_rate = 0.5

[[quota]]
client_id_prefix = "etl-"
mode = "shadow"
consumer_byte_rate = 1_000
"""

LISTED = """\
entity                     quota                     value    mode
user alice, client-id app  producer_byte_rate        500000   enforce
client-id <default>        producer_byte_rate        2097152  enforce
client-id <default>        controller_mutation_rate  0.5      enforce
client-id prefix etl-      consumer_byte_rate        1000     shadow
"""


# list and describe


def test_quotas_list_prints_every_entry(file: Path) -> None:
    assert done("list", "--quotas", str(file)) == LISTED


def test_quotas_list_prints_json(file: Path) -> None:
    assert json.loads(done("list", "--quotas", str(file), "--json")) == {
        "source": str(file),
        "quotas": [
            {
                "entity": {"user": "alice", "client_id": "app"},
                "mode": "enforce",
                "quotas": {"producer_byte_rate": 500000},
            },
            {
                "entity": {"client_id": None},
                "mode": "enforce",
                "quotas": {"producer_byte_rate": 2097152, "controller_mutation_rate": 0.5},
            },
            {
                "entity": {"client_id_prefix": "etl-"},
                "mode": "shadow",
                "quotas": {"consumer_byte_rate": 1000},
            },
        ],
    }


def test_quotas_list_prints_throttles_after_the_quotas(file: Path) -> None:
    throttles = """
[[replication]]
broker = "<default>"
leader.replication.throttled.rate = "10MB"
[[replication]]
topic = "orders"
leader.replication.throttled.replicas = ""
"""
    table = """\
replication       throttle                               value
broker <default>  leader.replication.throttled.rate      10000000
topic orders      leader.replication.throttled.replicas  none
"""
    file.write_text(FILE + throttles)
    assert done("list", "--quotas", str(file)) == f"{LISTED}\n{table}"
    assert json.loads(done("list", "--quotas", str(file), "--json"))["replication"] == [
        {"resource": {"broker": None}, "throttles": {"leader.replication.throttled.rate": "10000000"}},
        {"resource": {"topic": "orders"}, "throttles": {"leader.replication.throttled.replicas": ""}},
    ]
    file.write_text(throttles)
    assert done("list", "--quotas", str(file)) == table


def test_quotas_list_escapes_control_characters_in_names(file: Path) -> None:
    file.write_text('[[quota]]\nuser = "a\\u001b[2Jb\\nc"\nproducer_byte_rate = 1\n')
    _, row = done("list", "--quotas", str(file)).splitlines()
    assert row.startswith("user a\\x1b[2Jb\\nc  ")


def test_quotas_list_prints_the_quotas_of_one_entity(file: Path) -> None:
    _, *rows = done("list", "--quotas", str(file), "--client-id", "<default>").splitlines()
    assert [row.split()[2:4] for row in rows] == [
        ["producer_byte_rate", "2097152"],
        ["controller_mutation_rate", "0.5"],
    ]
    shown = json.loads(done("list", "--quotas", str(file), "--client-id-prefix", "etl-", "--json"))
    assert shown["quotas"] == [
        {"entity": {"client_id_prefix": "etl-"}, "mode": "shadow", "quotas": {"consumer_byte_rate": 1000}}
    ]


def test_quotas_list_fails_for_an_entity_without_quotas(file: Path) -> None:
    line = failed(FAILED, "list", "--quotas", str(file), "--user", "alice")
    assert line == f"user alice has no quota in {file}; what applies to a client: weir quotas explain"
    result = run("list", "--quotas", str(file), "--user", "alice", "--json")
    assert (result.exit_code, json.loads(result.stdout)["quotas"]) == (FAILED, [])


# set


def test_quotas_set_leaves_all_other_lines_unchanged(file: Path) -> None:
    result = run(
        *("set", "--quotas", str(file), "--user", "alice", "--client-id", "app"),
        *("producer_byte_rate=1MiB", "consumer_byte_rate=2M", "request_percentage=unlimited"),
    )
    assert result.exit_code == DONE, result.output
    assert result.stdout == (
        "user alice, client-id app: producer_byte_rate 500000 (488.3 KiB/s) -> 1048576 (1 MiB/s)\n"
        "user alice, client-id app: consumer_byte_rate none -> 2000000 (1.907 MiB/s)\n"
        "user alice, client-id app: request_percentage none -> unlimited\n"
    )
    assert result.stderr == f"changed {file}: a running Weir follows it within two seconds\n"
    new = 'consumer_byte_rate = 2000000\nrequest_percentage = "unlimited"'
    assert file.read_text() == FILE.replace("500_000  # for now", f"1048576  # for now\n{new}")


def test_quotas_set_and_delete_a_shadow_entry_beside_an_enforced_one(file: Path) -> None:
    options = ("--quotas", str(file), "--user", "alice", "--client-id", "app")
    out = done("set", *options, "--shadow", "producer_byte_rate=100000")
    assert out == "user alice, client-id app (shadow): producer_byte_rate none -> 100000 (97.66 KiB/s)\n"
    entries = json.loads(done("list", *options, "--json"))["quotas"]
    assert [(entry["mode"], entry["quotas"]) for entry in entries] == [
        ("enforce", {"producer_byte_rate": 500000}),
        ("shadow", {"producer_byte_rate": 100000}),
    ]
    done("delete", *options, "--shadow")
    assert file.read_text().rstrip() == FILE.rstrip()


def test_quotas_dry_run_shows_the_diff_and_writes_nothing(file: Path) -> None:
    options = ("set", "--quotas", str(file), "--client-id", "<default>", "producer_byte_rate=1K", "--dry-run")
    result = run(*options)
    assert result.exit_code == DONE, result.output
    lines = result.stdout.splitlines()
    assert lines[0] == "client-id <default>: producer_byte_rate 2097152 (2 MiB/s) -> 1000"
    assert "-producer_byte_rate = 2_097_152" in lines
    assert "+producer_byte_rate = 1000" in lines
    assert result.stderr == f"nothing was changed in {file}: --dry-run\n"
    assert file.read_text() == FILE
    report = json.loads(done(*options, "--json"))
    assert report == {
        "source": str(file),
        "dry_run": True,
        "changes": [
            {
                "entity": {"client_id": None},
                "key": "producer_byte_rate",
                "mode": "enforce",
                "before": 2097152,
                "after": 1000,
            }
        ],
    }
    assert file.read_text() == FILE


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--user a producer_byte_rate=0", "producer_byte_rate of user a must be a finite number above 0"),
        ("--user a producer_byte_rate=1.5", "it must be a whole number of bytes/s"),
        ("--user a producer_byte_rat=1", "did you mean producer_byte_rate?"),
        ("--user a request_percentage=50%", "request_percentage is '50%', must be a plain number"),
        ("--user a request_percentage=0", "request_percentage of user a must be a finite number above 0"),
        ("--ip 10.0.0.1 request_percentage=1", "request_percentage cannot be set for an ip"),
        ("--user a connection_creation_rate=1", "connection_creation_rate cannot be set for users"),
        ("--ip 10.0.0.1 producer_byte_rate=1", "producer_byte_rate cannot be set for an ip"),
        ("producer_byte_rate=1", "an entity needs a user, a client-id, or both"),
        ("--user a", "Missing argument 'KEY=VALUE...'"),
    ],
)
def test_quotas_set_refuses_invalid_values_and_writes_nothing(
    file: Path, arguments: str, words: str, misused: Misused
) -> None:
    line = misused("quotas", "set", "--quotas", str(file), *arguments.split())
    assert words in line
    assert line.endswith("see weir quotas set --help")
    assert file.read_text() == FILE


# delete


def test_quotas_delete_removes_all_quotas_of_an_entity(file: Path) -> None:
    report = json.loads(done("delete", "--quotas", str(file), "--client-id", "<default>", "--json"))
    assert [(change["key"], change["after"]) for change in report["changes"]] == [
        ("producer_byte_rate", None),
        ("controller_mutation_rate", None),
    ]
    assert "<default>" not in file.read_text()
    assert "# for now" in file.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--user bob", "user bob has no quota in "),
        ("--client-id <default> consumer_byte_rate", "client-id <default> has no consumer_byte_rate in "),
        ("--client-id <default> --shadow", "client-id <default> has no shadow quota in "),
    ],
)
def test_quotas_delete_fails_for_a_missing_quota(file: Path, arguments: str, words: str) -> None:
    assert words in failed(FAILED, "delete", "--quotas", str(file), *arguments.split())
    assert file.read_text() == FILE


@pytest.mark.parametrize("command", [["list"], ["delete", "--user", "a"]])
def test_quotas_commands_report_missing_and_broken_files(tmp_path: Path, command: list[str]) -> None:
    missing, broken = tmp_path / "missing.toml", tmp_path / "broken.toml"
    broken.write_text('[[quota]]\nuser = "a"\nproducer_byte_rat = 1\n')
    assert "cannot read the quota file: No such file" in failed(USAGE, *command, "--quotas", str(missing))
    line = failed(USAGE, *command, "--quotas", str(broken))
    assert line.startswith(f"{broken}: [[quota]] entry 1 (line 3): unknown key")


def test_quotas_commands_report_configurations_without_a_quota_file(tmp_path: Path) -> None:
    config = tmp_path / "weir.toml"
    config.write_text('upstream = "a:1"\n')
    assert "it names no quota file" in failed(USAGE, "list", "--config", str(config))
    config.write_text("upstreams = 1\n")
    assert "did you mean upstream?" in failed(USAGE, "list", "--config", str(config))


@pytest.mark.parametrize("command", ["set --user User:bob producer_byte_rate=1", "explain --user User:bob"])
def test_quotas_commands_refuse_a_user_with_a_principal_type(file: Path, command: str) -> None:
    name, *others = command.split()
    result = run(name, "--quotas", str(file), *others)
    assert result.exit_code == USAGE
    assert "leave out User:" in result.output
    assert file.read_text() == FILE
