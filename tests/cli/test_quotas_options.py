"""Pacing and scope of entries in `weir quotas`: set, list, describe and explain."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.cli.quotas_command import done

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Misused

FILE = """\
# Ours.

[[quota]]
user = "alice"  # the export
producer_byte_rate = 500_000
pacing = "smooth"
"""


def test_quotas_list_shows_the_options_of_an_entry(file: Path) -> None:
    done("set", "--quotas", str(file), "--user", "bob", "consumer_byte_rate=5")
    lines = done("list", "--quotas", str(file)).splitlines()
    assert [line.split("  ")[-1].strip() for line in lines] == ["mode", "enforce, smooth", "enforce"]
    alice, bob = json.loads(done("list", "--quotas", str(file), "--json"))["quotas"]
    assert alice["pacing"] == "smooth"
    assert "pacing" not in bob


def test_quotas_set_keeps_the_pacing_of_an_entry_and_adds_a_scope(file: Path) -> None:
    arguments = ("set", "--quotas", str(file), "--user", "alice")
    done(*arguments, "producer_byte_rate=600000")
    assert file.read_text() == FILE.replace("500_000", "600000")
    said = done(*arguments, "--scope", "cluster", "producer_byte_rate=600000")
    assert "pacing smooth, scope cluster\n" in said
    assert file.read_text() == FILE.replace("500_000", "600000") + 'scope = "cluster"\n'
    done(*arguments, "--pacing", "default", "--scope", "broker", "producer_byte_rate=500000")
    assert file.read_text() == FILE.replace("500_000", "500000").replace('pacing = "smooth"\n', "")


def test_quotas_set_writes_a_new_entry_with_options(file: Path) -> None:
    options = ("--pacing", "kafka", "--scope", "cluster")
    done("set", "--quotas", str(file), "--client-id", "etl", *options, "request_percentage=50")
    assert file.read_text().endswith(
        '\n[[quota]]\nclient_id = "etl"\npacing = "kafka"\nscope = "cluster"\nrequest_percentage = 50\n'
    )


def test_quotas_set_of_the_current_options_writes_nothing(file: Path) -> None:
    said = done(
        "set", "--quotas", str(file), "--user", "alice", "--pacing", "smooth", "producer_byte_rate=500000"
    )
    assert "unchanged" in said
    assert "pacing smooth" not in said
    assert file.read_text() == FILE


def test_quotas_set_refuses_options_of_rates_of_connections(file: Path, misused: Misused) -> None:
    arguments = ("--ip", "10.0.0.7", "--pacing", "smooth", "connection_creation_rate=5")
    line = misused("quotas", "set", "--quotas", str(file), *arguments)
    assert "have no pacing and no scope" in line


def test_quotas_describe_shows_the_options_of_the_entity(file: Path) -> None:
    assert "enforce, smooth" in done("describe", "--quotas", str(file), "--user", "alice")


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


def test_quotas_explain_takes_the_configured_pacing_for_entries_that_say_none(file: Path) -> None:
    config = file.with_name("weir.toml")
    config.write_text('upstream = "a:1"\nquotas = "quotas.toml"\nquota_pacing = "smooth"\n')
    file.write_text(FILE.replace('pacing = "smooth"\n', ""))
    assert "pacing: smooth" in done("explain", "--config", str(config), "--user", "alice")
    assert "pacing: smooth" not in done("explain", "--quotas", str(file), "--user", "alice")
