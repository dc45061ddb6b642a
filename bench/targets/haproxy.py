"""HAProxy in TCP mode, one thread: copies bytes and looks at none. What C without any parsing costs."""

from __future__ import annotations

import shutil
from typing import Final

from bench.targets.target import Running, Surroundings, Target, start_process
from tests.kafka.ports import free_range
from tests.kafka.settings import HOST

_CONFIG: Final = """\
global
    nbthread 1
    maxconn 1000
defaults
    mode tcp
    timeout connect 5s
    timeout client 5m
    timeout server 5m
listen kafka
    bind {host}:{port}
    server broker {host}:{broker_port}
"""


def _start(surroundings: Surroundings) -> Running:
    port = free_range(1)
    config = surroundings.directory / "haproxy.cfg"
    config.write_text(_CONFIG.format(host=HOST, port=port, broker_port=surroundings.broker_port))
    return start_process(surroundings, "haproxy", ["haproxy", "-db", "-f", str(config)], port)


def _missing() -> str | None:
    return None if shutil.which("haproxy") else "haproxy is not installed (Debian: apt-get install haproxy)"


HAPROXY: Final = Target("haproxy", "HAProxy (TCP)", _start, _missing)
