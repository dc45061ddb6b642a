"""The truth: what a broker itself counts as the request time of each client, read through JMX.

A broker has such a figure for every client-id while one has a request quota. It is a rate over the quota's
window; with a window of an hour, the rate times the time that it covers is all there ever was.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Final, Self

from bench import jars
from bench.targets.kroxylicious import COMPILE_S
from tests.kafka.java import java_command

WINDOW_S: Final = 3600
SETTINGS: Final = {"quota.window.num": "2", "quota.window.size.seconds": str(WINDOW_S)}
"""What the broker must be started with."""
SOURCE: Final = Path(jars.__file__).parent.parent / "java" / "RequestTimes.java"
_US_PER_PERCENT: Final = 10_000.0


class TruthError(Exception):
    """The broker's figures cannot be read."""


class Truth:
    """A broker's own account, by client-id. Ends with `close`, or as a context manager."""

    def __init__(self, where: str, directory: Path) -> None:
        """`where` is the broker's JMX, HOST:PORT; `directory` is for what is compiled. Raises TruthError."""
        classes = _compiled(directory)
        self._began_s: dict[str, float] = {}
        self._child = subprocess.Popen(
            [java_command(), "-Xmx64m", "-XX:+UseSerialGC", "-cp", str(classes), SOURCE.stem, where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, client_id: str, at_s: float | None = None) -> None:
        """This client-id has sent its first request now, or at this time of the monotonic clock."""
        self._began_s.setdefault(client_id, time.monotonic() if at_s is None else at_s)

    def read(self) -> dict[str, float]:
        """All that each client-id that was begun has used so far, in µs of one thread. Raises TruthError."""
        now_s, rates = time.monotonic(), self.percents()
        return {
            client_id: total_us(rates.get(client_id, 0.0), now_s - began_s)
            for client_id, began_s in self._began_s.items()
        }

    def percents(self) -> dict[str, float]:
        """The broker's current rate of every client-id, in percent of one thread. Raises TruthError."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write("\n")
            self._child.stdin.flush()
        except BrokenPipeError as error:
            raise TruthError("what reads JMX has ended: is the broker alive?") from error
        found = list[str]()
        while (line := self._child.stdout.readline()) not in {"", "\n"}:
            found.append(line)
        if not line:
            raise TruthError("what reads JMX has ended: is the broker alive?")
        return parse("".join(found))

    def close(self) -> None:
        """End what reads."""
        self._child.kill()
        self._child.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parse(text: str) -> dict[str, float]:
    """Client-id to percent, from lines NAME=RATE. Raises TruthError."""
    rates = {}
    for line in text.splitlines():
        client_id, equals, rate = line.rpartition("=")
        if not equals:
            raise TruthError(f"not a client's rate: {line!r}")
        rates[client_id] = float(rate)
    return rates


def total_us(percent: float, elapsed_s: float) -> float:
    """What a rate comes to `elapsed_s` after a client's first request, at most an hour: Kafka's `Rate`
    divides by that time and one whole window more (it has two, the older of which it takes as full).
    """
    return percent * _US_PER_PERCENT * (WINDOW_S + elapsed_s)


def _compiled(directory: Path) -> Path:
    (compiler,) = jars.classpath("ecj")
    command = [java_command(), "-jar", str(compiler), "-17", "-d", str(directory), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    if done.returncode:
        raise TruthError(f"{SOURCE.name} did not compile: {done.stderr.strip()}")
    return directory
