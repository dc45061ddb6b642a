"""`python -m tests.others [servers]`: verify further clients at real brokers, send findings.toml's requests
to other servers, and write what was found to docs/background/conformance-findings.md. Needs Go, Rust, npm.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import document
from tests.kafka import Cluster
from tests.others import servers
from tests.others.servers import BUILD
from tests.raw.requests import ask
from tests.tools.compiled_only import ROOT
from weir.protocol.messages import AlterClientQuotasRequest, AlterClientQuotasResponse

PAGE: Final = ROOT / "docs" / "background" / "conformance-findings.md"
HERE: Final = Path(__file__).parent
BROKERS: Final = ("3.9.1", "4.4.0")
GO: Final = {
    "Sarama": ("sarama", "github.com/IBM/sarama"),
    "franz-go": ("franz-go", "github.com/twmb/franz-go"),
    "kafka-go": ("kafka-go", "github.com/segmentio/kafka-go"),
}
NPM: Final = {
    "KafkaJS": ("kafkajs.js", "kafkajs"),
    "@platformatic/kafka": ("platformatic.mjs", "@platformatic/kafka"),
}
QUOTAS: Final = {"producer_byte_rate": 150.0, "consumer_byte_rate": 400.0}
"""Of all client-ids, so that clients are throttled: a session has some kilobytes."""


class VerifiedSession(NamedTuple):
    client: str
    broker: str
    frames: int
    ended: int
    """Exit code of `weir capture`."""
    findings: list[dict[str, Any]]


def build() -> dict[str, list[str]]:
    """Build all clients. Return name and version → command, without its arguments."""
    BUILD.mkdir(parents=True, exist_ok=True)
    for file in HERE.iterdir():
        if file.suffix in {".json", ".js", ".mjs"}:
            shutil.copy(file, BUILD)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--ignore-scripts"], cwd=BUILD, check=True)
    subprocess.run(
        ["go", "build", "-o", BUILD, "./session", "./kfake"], cwd=ROOT / "tests" / "go", check=True
    )
    shutil.copytree(HERE / "rskafka", BUILD / "rskafka", dirs_exist_ok=True)
    subprocess.run(["cargo", "build"], cwd=BUILD / "rskafka", check=True)
    packages = json.loads((HERE / "package.json").read_text())["dependencies"]
    modules = dict(re.findall(r"\t(\S+) v(\S+)", (ROOT / "tests" / "go" / "go.mod").read_text()))
    found = {
        f"{name} {packages[package]}": ["node", script, "{bootstrap}"]
        for name, (script, package) in NPM.items()
    }
    for name, (_, module) in GO.items():
        found[f"{name} {modules[module]}"] = [str(BUILD / "session"), "{bootstrap}"]
    return found | {"rskafka 0.6.0": [str(BUILD / "rskafka/target/debug/rskafka-session"), "{bootstrap}"]}


def limit_all(port: int) -> None:
    """Set the quotas of all client-ids."""
    made = AlterClientQuotasRequest
    operations = [made.OpData(key=key, value=value, remove=False) for key, value in QUOTAS.items()]
    entry = made.EntryData(
        entity=[made.EntityData(entity_type="client-id", entity_name=None)], ops=operations
    )
    answer = ask(
        ("127.0.0.1", port), made(entries=[entry], validate_only=False), AlterClientQuotasResponse, 1
    )
    assert [each.error_code for each in answer.entries] == [0]


def verified(client: str, command: list[str], broker: str, bootstrap: str) -> VerifiedSession:
    """Run a client's session through `weir capture`."""
    name = client.split()[0]
    words = [*command, f"t-{name.strip('@').replace('/', '-')}", *GO.get(name, ())[:1]]
    done = subprocess.run(
        [sys.executable, "-m", "weir.cli", "capture", "--upstream", bootstrap, "--for", "120", "--", *words],
        cwd=BUILD,
        env={**os.environ, "WEIR_VERIFY_JSON": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    report = json.loads(done.stdout[done.stdout.index('{\n  "findings"') :])
    return VerifiedSession(client, broker, report["checked"]["frames"], done.returncode, report["findings"])


def rows(sessions: list[VerifiedSession]) -> Iterator[str]:
    yield "| client | broker | frames | findings |"
    yield "| --- | --- | ---: | --- |"
    clean = []
    for one in sessions:
        found = "; ".join(map(said, one.findings))
        unfinished = "" if one.ended in (0, 1) else " (the session did not end)"
        if found or unfinished:
            yield f"| {one.client} | {one.broker} | {one.frames:,} | {found or 'none'}{unfinished} |"
        else:
            clean.append(one.client)
    yield ""
    yield f"These clients have no findings: {', '.join(dict.fromkeys(clean))}."


def said(group: dict[str, Any]) -> str:
    one = group["first"]
    text = f"`{one['rule']}` in {one['api']} {one['version']} {one['path']}".strip()
    return f"{text} ({group['count']} times): expected {one['expected']}, found {one['found']}"


def main() -> None:
    commands = build()
    sessions = []
    with ExitStack() as stack:
        clusters = {release: stack.enter_context(Cluster(release)) for release in BROKERS}
        found = list(servers.rows({release: each.bootstrap for release, each in clusters.items()}))
        document.put(PAGE, "\n".join([*found, "", f"Measured {datetime.now(UTC).date()}."]), "servers")
        for release, cluster in clusters.items() if sys.argv[1:] != ["servers"] else ():
            limit_all(cluster.ports[0])
            for client, command in commands.items():
                sessions.append(verified(client, command, release, cluster.bootstrap))
                print(sessions[-1], flush=True)
    if sessions:
        lines = [*rows(sorted(sessions)), "", f"Measured {datetime.now(UTC).date()}."]
        document.put(PAGE, "\n".join(lines), "others")


if __name__ == "__main__":
    main()
