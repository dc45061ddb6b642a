"""HAProxy in TCP mode, one thread: copies bytes and looks at none. What C without any parsing costs."""

from __future__ import annotations

import resource
import shutil
from typing import Final

from bench.targets.target import Running, Surroundings, Target, output_of, start_process
from tests.kafka.ports import free_range
from tests.kafka.settings import HOST

_CONFIG: Final = """\
global
    nbthread 1
    maxconn {connections}
defaults
    mode tcp
    timeout connect 5s
    timeout client 5m
    timeout server 5m
listen kafka
    bind {host}:{port}
    server broker {host}:{broker_port}
"""
CONNECTIONS_MAX: Final = 12_000
OTHER_DESCRIPTORS: Final = 100


def _start(surroundings: Surroundings) -> Running:
    port = free_range(1)
    config = surroundings.directory / "haproxy.cfg"
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = min(CONNECTIONS_MAX, (descriptors - OTHER_DESCRIPTORS) // 2)
    values = {"host": HOST, "port": port, "broker_port": surroundings.broker_port}
    config.write_text(_CONFIG.format(connections=connections, **values))
    return start_process(surroundings, "haproxy", ["haproxy", "-db", "-f", str(config)], port)


def _missing() -> str | None:
    return None if shutil.which("haproxy") else "haproxy is not installed (Debian: apt-get install haproxy)"


def _version() -> str | None:
    return output_of("haproxy", "-v")


HAPROXY: Final = Target("haproxy", "HAProxy (TCP)", _start, _missing, version=_version)
