"""`python -m tests.conformance.expected [TARGET...]`: writes the expected outcomes of `weir probe` again.

TARGET is a Kafka release or `librdkafka-mock`; default: all of them. Each is probed in a fresh state.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.kafka.cluster import Cluster
from weir.conformance.probe.brokers import FILES
from weir.conformance.probe.expectations import expectations, parse_expectations
from weir.conformance.probe.link import ProbeTarget
from weir.conformance.probe.runner import ProbeOptions, ProbeRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weir.conformance.probe.case import Result
    from weir.conformance.probe.login import Login

RELEASES: Final = ("0.10.2.2", "1.1.1", "2.8.2", "3.9.1", "4.2.0", "4.4.0")
MOCK: Final = "librdkafka-mock"
WELL_FORMED: Final = ("*/minimal", "*/maximal", "*/random-?", "*/no-acks")
MOCK_STOPS: Final = ("ConsumerGroupHeartbeat",)
"""Cases at which the mock cluster's process aborts."""


def file_of(target: str) -> Path:
    """Return the file with the expected outcomes of a release, or of the mock cluster."""
    return FILES / (f"{MOCK}.json" if target == MOCK else f"kafka-{target}.json")


def expected(target: str) -> dict[str, str]:
    return parse_expectations(file_of(target).read_bytes())


def probed(
    bootstrap: str, only: Sequence[str] = (), skip: Sequence[str] = (), login: Login | None = None
) -> list[Result]:
    """Return the results of the profile `protocol`, with seed 0, at a broker or proxy."""
    host, port = bootstrap.split(",")[0].rsplit(":", 1)
    options = ProbeOptions(ProbeTarget(host, int(port)), login, only=tuple(only), skip=tuple(skip))
    return list(ProbeRun(options).results())


def probed_mock() -> list[Result]:
    with mock_cluster() as bootstrap:
        return probed_well_formed(bootstrap)


def probed_well_formed(bootstrap: str) -> list[Result]:
    """Return the results of well-formed requests at the mock cluster, or at Weir in front of it."""
    return probed(bootstrap, WELL_FORMED, MOCK_STOPS)


@contextlib.contextmanager
def mock_cluster() -> Iterator[str]:
    command = [sys.executable, "-m", "weir.demo.mock_cluster", "1"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def main() -> None:
    for target in sys.argv[1:] or (*RELEASES, MOCK):
        if target == MOCK:
            results = probed_mock()
        else:
            with Cluster(target) as cluster:
                results = probed(cluster.bootstrap)
        file_of(target).write_bytes(expectations(results))
        failed = sum(not result.passed for result in results)
        sys.stdout.write(f"{target}: {len(results)} cases, {failed} failed\n")


if __name__ == "__main__":
    main()
