"""Pacing and scope of entries in `weir quotas`: set, list, describe and explain."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Misused
from tests.cli.quotas_command import done

FILE = """\
# Ours.

[[quota]]
user = "alice"  # the export
producer_byte_rate = 500_000
pacing = "smooth"
"""


def test_quotas_set_keeps_the_pacing_of_an_entry_and_adds_a_scope(file: Path) -> None:
    arguments = ("set", "--quotas", str(file), "--user", "alice")
    done(*arguments, "producer_byte_rate=600000")
    assert file.read_text() == FILE.replace("500_000", "600000")
    said = done(*arguments, "--scope", "cluster", "producer_byte_rate=600000")
    assert "pacing smooth, scope cluster\n" in said
    assert file.read_text() == FILE.replace("500_000", "600000") + 'scope = "cluster"\n'
    done(*arguments, "--pacing", "default", "--scope", "broker", "producer_byte_rate=500000")
    assert file.read_text() == FILE.replace("500_000", "500000").replace('pacing = "smooth"\n', "")


def test_quotas_set_refuses_options_of_rates_of_connections(file: Path, misused: Misused) -> None:
    arguments = ("--ip", "10.0.0.7", "--pacing", "smooth", "connection_creation_rate=5")
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
