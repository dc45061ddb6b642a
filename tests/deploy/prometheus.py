"""A Prometheus that runs for a while, and answers instant queries."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from tests.kafka.ports import free_range

PROMETHEUS: Final = shutil.which("prometheus")
"""Path of Prometheus (Debian's package `prometheus`); None without one in the PATH."""
START_S: Final = 60.0
VARIABLES: Final = (("$__rate_interval", "1m"), ("$instance", ".*"), ("$quota", ".*"))
"""Variables of the dashboard, with values that select everything."""
Series: TypeAlias = dict[str, Any]
"""Labels (`metric`), and Unix time (s) and text of the value (`value`)."""


@contextmanager
def serving(folder: Path, config: str, *options: str) -> Iterator[str]:
    """Run Prometheus with the text of a configuration until the block ends; its data are in `folder`/data.
    Yield HOST:PORT. Raises RuntimeError if it does not start.
    """
    assert PROMETHEUS is not None
    (folder / "prometheus.yml").write_text(config, "utf-8")
    address = f"127.0.0.1:{free_range(1)}"
    command = [PROMETHEUS, f"--config.file={folder / 'prometheus.yml'}", f"--web.listen-address={address}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", *options]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)  # our own command
    try:
        _wait_until_ready(address, process)
        yield address
    finally:
        process.terminate()
        process.wait(120)


def _wait_until_ready(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + START_S
    while time.monotonic() < deadline_s:
        if process.poll() is not None:
            raise RuntimeError("prometheus has ended")
        try:
            with urllib.request.urlopen(f"http://{address}/-/ready", timeout=5):
                return
        except OSError:
            time.sleep(0.05)  # it has no other sign that it listens
    raise RuntimeError(f"prometheus is not ready after {START_S:g} s")


def asked(address: str, expression: str, at_s: float | None = None) -> list[Series]:
    """Return the result of an instant query of a panel or an alert at a Unix time (s), or now."""
    for variable, text in VARIABLES:
        expression = expression.replace(variable, text)
    words = {"query": expression} | ({} if at_s is None else {"time": str(at_s)})
    url = f"http://{address}/api/v1/query?{urllib.parse.urlencode(words)}"
    with urllib.request.urlopen(url, timeout=30) as answer:
        found = json.load(answer)
    assert found["status"] == "success", found
    result: list[Series] = found["data"]["result"]
    return result
