"""`python -m weir.demo.proxy_process SETTINGS`: run Weir; `weir` starts this module in a subprocess.

SETTINGS is a JSON object with the settings of the configuration file.
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from weir.demo.errors import DemoError
from weir.demo.subprocesses import end_with_parent, running_module
from weir.proxy import logs
from weir.proxy.config import config
from weir.proxy.run import run

HOST: Final = "127.0.0.1"
PORTS: Final = (20_000, 32_000)
"""First and last port to try. They are below the ports that operating systems assign to outgoing
connections.
"""
ATTEMPTS: Final = 200
STARTS: Final = 3
START_S: Final = 20.0


@contextmanager
def weir(
    upstream: str, node_ids: Iterable[int], quotas: Path, further: Mapping[str, object] | None = None
) -> Iterator[str]:
    """Run Weir in front of the cluster until the block ends; yield HOST:PORT from which clients bootstrap.
    Raises DemoError if Weir does not start.

    `further` are more settings, named as in the configuration file.
    """
    node_ids = sorted(node_ids)
    for attempt in range(1, STARTS + 1):
        listen, ports = free_ports([node_id - node_ids[0] for node_id in node_ids])
        settings = {
            "upstream": upstream,
            "listen": f"{HOST}:{listen}",
            "broker_ports": f"{ports}@{node_ids[0]}",
            "quotas": str(quotas),
            "log_level": "warning",
            "drain_timeout_s": 0.5,
            **(further or {}),
        }
        log = quotas.with_name("weir.log")
        with running_module(
            "weir.demo.proxy_process", [msgspec.json.encode(settings).decode()], log
        ) as process:
            if _accepts(process, listen):
                yield f"{HOST}:{listen}"
                return
        said = log.read_text("utf-8", "replace").strip().rpartition("\n")[2]
        # If Weir cannot listen, another process has taken a port: choose other ports.
        if "cannot listen" not in said or attempt == STARTS:
            raise DemoError(f"Weir did not start: {said or f'no port opened within {START_S:g} s'}")


def _accepts(process: subprocess.Popen[str], port: int) -> bool:
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            return True
        time.sleep(0.05)
    return False


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind((HOST, port))
        except OSError:
            return False
    return True


def free_ports(
    offsets: list[int],
    is_free: Callable[[int], bool] = _is_free,
    draw: Callable[[int, int], int] = random.randint,
) -> tuple[int, str]:
    """Return a free port for bootstrapping, and a range FIRST-LAST of ports in which FIRST + offset is free
    for each of `offsets`, in ascending order. Raises DemoError if no such ports are found.
    """
    last = offsets[-1]
    for _ in range(ATTEMPTS if PORTS[0] + last + 1 < 65_535 else 0):
        listen = draw(PORTS[0], max(PORTS[0], PORTS[1] - last - 1))
        first = listen + 1
        if first + last <= 65_535 and all(map(is_free, (listen, *(first + offset for offset in offsets)))):
            return listen, f"{first}-{first + last}"
    raise DemoError(f"no room for {last + 2} ports in a row from {PORTS[0]} on: the node ids span {last + 1}")


def main() -> None:
    """Run Weir until SIGTERM; print a configuration error as one line on standard error."""
    end_with_parent()
    try:
        loaded = config.load(None, msgspec.json.decode(sys.argv[1], type=dict[str, object]))
        logs.configure(loaded.settings.log_level)
        run(loaded)
    except config.ConfigError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
