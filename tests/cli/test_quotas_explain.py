"""`weir quotas explain`: what quotas.explain finds, in words and as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Misused
from tests.cli.quotas_command import done, run

FILE = """\
[[quota]]
user = "alice"
client_id = "<default>"
producer_byte_rate = 524288

[[quota]]
user = "alice"
producer_byte_rate = 3_000_000

[[quota]]
client_id_prefix = "etl-"
mode = "shadow"
consumer_byte_rate = 1000

[[quota]]
client_id = "<default>"
consumer_byte_rate = 2000

[[quota]]
client_id_prefix = "etl-"
request_percentage = 12.5

[[quota]]
topic = "logs"
producer_byte_rate = 5000

[[quota]]
ip = "<default>"
connection_creation_rate = 50
"""


def explained(*arguments: object) -> dict[str, dict[str, Any]]:
    report = json.loads(done("explain", *map(str, arguments), "--json"))
    return {f"{charge['subject']} {charge['key']}": charge for charge in report["charges"]}


def test_quotas_explain_prints_words(file: Path) -> None:
    out = done(
        *("explain", "--quotas", str(file), "--user", "alice", "--client-id", "etl-1"),
        *("--topic", "logs", "--ip", "10.0.0.7"),
    )
    assert out.splitlines()[0] == "user alice, client-id etl-1"
    parts = out.split("\n\n")[1:]
    assert [part.splitlines()[0] for part in parts] == [
        "producer_byte_rate: 524288 (512 KiB/s)",
        "consumer_byte_rate: 2000 (1.953 KiB/s)",
        "request_percentage: 12.5",
        "controller_mutation_rate: no limit",
        "old_read_byte_rate: no limit",
        "producer_byte_rate of the topic: 5000 (4.883 KiB/s)",
        "consumer_byte_rate of the topic: no limit",
        "connection_creation_rate of the ip: 50",
    ]
    produce = [" ".join(line.split()) for line in parts[0].splitlines()]
    assert produce[1].startswith("shared by all connections of user alice with client-id etl-1")
    assert "no entry" not in parts[0]
    assert "user alice, client-id <default> 524288 wins" in produce
    assert "user alice 3000000 a more specific one wins, user alice, client-id <default>" in produce
    assert "  in shadow: 1000\n" in parts[1]
    assert "  shared by all connections whose client-id begins with etl-, together" in parts[2]
    assert parts[3].splitlines()[1:] == ["    no entry at any level"]


def test_quotas_explain_escapes_control_characters_of_a_group(file: Path) -> None:
    group = '[[group]]\nname = "a\\u001b"\nusers = ["alice"]\n[[quota]]\ngroup = "a\\u001b"\n'
    file.write_text(group + "producer_byte_rate = 1\n")
    assert "rate of the group a\\x1b: 1\n" in done("explain", "--quotas", str(file), "--user", "alice")


def test_quotas_explain_prints_json(file: Path) -> None:
    found = explained("--quotas", file, "--user", "alice", "--client-id", "etl-1")
    produce, fetch = found["client producer_byte_rate"], found["client consumer_byte_rate"]
    assert (produce["limit"], produce["shadow"]) == (524288, None)
    assert (fetch["limit"], fetch["shadow"]) == (2000, 1000)
    steps = {(step["who"], step["mode"]): step for step in produce["steps"]}
    assert steps["user alice, client-id <default>", "enforce"] == {
        "who": "user alice, client-id <default>",
        "entity": {"user": "alice", "client_id": None},
        "value": 524288,
        "mode": "enforce",
        "verdict": "wins",
        "reason": "wins",
    }
    assert steps["user alice", "enforce"]["verdict"] == "outranked"
    (counted,) = [step for step in fetch["steps"] if step["verdict"] == "counted"]
    assert (counted["entity"], counted["mode"]) == ({"client_id_prefix": "etl-"}, "shadow")


def test_quotas_explain_uses_the_configurations_settings(file: Path) -> None:
    config = file.with_name("weir.toml")
    config.write_text(
        'upstream = "a:1"\nquotas = "quotas.toml"\nquota_mode = "shadow"\nempty_client_id = "default"\n'
    )
    fetch = explained("--config", config)["client consumer_byte_rate"]
    assert (fetch["limit"], fetch["shadow"]) == (None, 2000)
    result = run("explain", "--config", str(config))
    assert result.stdout.startswith("user ANONYMOUS, no client-id (taken as <empty>)\n")
    assert result.stderr == "quota_mode is shadow: none of these is enforced, all are only counted\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--user", ""], "a client has a user; without authentication it is ANONYMOUS"),
        (["--ip", "host"], "--ip is 'host', must be an IPv4 or IPv6 address"),
        (["--topic", ""], "must not be empty"),
    ],
)
def test_quotas_explain_refuses_impossible_clients(
    file: Path, arguments: list[str], words: str, misused: Misused
) -> None:
    assert words in misused("quotas", "explain", "--quotas", str(file), *arguments)


def test_quotas_explain_names_the_topic_over_which_weirs_share_a_budget(tmp_path: Path) -> None:
    (tmp_path / "quotas.toml").write_text(
        """
[[quota]]
user = "alice"
producer_byte_rate = 1000
consumer_byte_rate = 1000
scope = "cluster"

[[quota]]
user = "bob"
producer_byte_rate = 1000
controller_mutation_rate = 5
""",
        "utf-8",
    )
    settings = 'upstream = "a:1"\nquotas = "quotas.toml"\nusage_share_topic = "__weir_usage"\n'
    (tmp_path / "weir.toml").write_text(settings, "utf-8")
    shared = "  and by clients of other Weirs, over the topic __weir_usage"
    of_alice = done("explain", "--config", str(tmp_path / "weir.toml"), "--user", "alice")
    assert of_alice.splitlines().count(shared) == 2
    of_bob = explained("--config", tmp_path / "weir.toml", "--user", "bob")
    for charge in ("client producer_byte_rate", "client controller_mutation_rate"):
        assert of_bob[charge]["shared_over"] == "__weir_usage"
