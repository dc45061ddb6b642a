"""kafka-proxy (Go), which rewrites broker addresses like Weir; measured if it is installed."""

from __future__ import annotations

import shutil
from typing import Final

from bench.targets.target import Running, Surroundings, Target, output_of, start_process
from tests.kafka.ports import free_range
from tests.kafka.settings import HOST


def _start(surroundings: Surroundings) -> Running:
    port = free_range(1)
    command = [
        "kafka-proxy",
        "server",
        "--dynamic-listeners-disable",
        "--http-disable",
        "--log-level",
        "warn",
    ]
    command += ["--bootstrap-server-mapping", f"{HOST}:{surroundings.broker_port},{HOST}:{port}"]
    return start_process(surroundings, "kafka-proxy", command, port)


def _missing() -> str | None:
    return (
        None
        if shutil.which("kafka-proxy")
        else "no kafka-proxy on the PATH (github.com/grepplabs/kafka-proxy)"
    )


def _version() -> str | None:
    return output_of("kafka-proxy", "version")


KAFKA_PROXY: Final = Target(
    "kafka-proxy", "kafka-proxy (Go)", _start, _missing, warm_up_s=2.0, version=_version
)
