"""HAProxy in TCP mode with one thread: it copies bytes without parsing them, so it shows the cost of a proxy
in C that does not parse.
"""

from __future__ import annotations

import resource
import shutil
from dataclasses import replace
from typing import Final

from bench import certificate
from bench.entry import PLAIN, Entry
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
    bind {host}:{port}{tls}
    server broker {host}:{broker_port}
"""
CONNECTIONS_MAX: Final = 12_000
OTHER_DESCRIPTORS: Final = 100


def _start(surroundings: Surroundings) -> Running:
    return _start_with(surroundings, "", PLAIN)


def _start_tls(surroundings: Surroundings) -> Running:
    made = certificate.make(surroundings.directory / "haproxy-tls")
    return _start_with(surroundings, f" ssl crt {made.both}", Entry(ca=str(made.ca)))


def _start_with(surroundings: Surroundings, tls: str, entry: Entry) -> Running:
    port = free_range(1)
    config = surroundings.directory / "haproxy.cfg"
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = min(CONNECTIONS_MAX, (descriptors - OTHER_DESCRIPTORS) // 2)
    values = {"host": HOST, "port": port, "broker_port": surroundings.broker_port, "tls": tls}
    config.write_text(_CONFIG.format(connections=connections, **values))
    return start_process(surroundings, "haproxy", ["haproxy", "-db", "-f", str(config)], port, entry)


def _missing() -> str | None:
    return None if shutil.which("haproxy") else "haproxy is not installed (Debian: apt-get install haproxy)"


def _version() -> str | None:
    return output_of("haproxy", "-v")


HAPROXY: Final = Target("haproxy", "HAProxy (TCP)", _start, _missing, version=_version)
HAPROXY_TLS: Final = replace(HAPROXY, start=_start_tls)
