"""Read the request time of each client as the broker measures it, through JMX.

A broker measures this for every client-id to which a request quota applies, as a rate over the quota's
window. With a window of an hour, the rate times the measured time is the client's whole request time.
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
"""Broker settings that make the window of quotas long enough: an hour."""
SOURCE: Final = Path(jars.__file__).parent.parent / "java" / "RequestTimes.java"
_US_PER_PERCENT: Final = 10_000.0


class TruthError(Exception):
    """Raised if the broker's request times cannot be read."""


class Truth:
    """Reads the broker's request time by client-id, with a Java subprocess. Call `close` at the end, or use
    this as a context manager.
    """

    def __init__(self, where: str, directory: Path) -> None:
        """Compile and start the Java program that reads the broker's JMX. `where` is the JMX address,
        HOST:PORT; the class files are written to `directory`. Raises TruthError.
        """
        classes = _compiled(directory)
        self._began_s: dict[str, float] = {}
        self._child = subprocess.Popen(
            [java_command(), "-Xmx64m", "-XX:+UseSerialGC", "-cp", str(classes), SOURCE.stem, where],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def begin(self, client_id: str, at_s: float | None = None) -> None:
        """Note that this client-id has sent its first request, now or at the time `at_s` (s, monotonic).
        Later calls for the same client-id have no effect.
        """
        self._began_s.setdefault(client_id, time.monotonic() if at_s is None else at_s)

    def read(self) -> dict[str, float]:
        """Return the total request time (µs of one thread) so far of each client-id for which `begin` was
        called. Raises TruthError.
        """
        now_s, rates = time.monotonic(), self.percents()
        return {
            client_id: total_us(rates.get(client_id, 0.0), now_s - began_s)
            for client_id, began_s in self._began_s.items()
        }

    def percents(self) -> dict[str, float]:
        """Return the broker's current rate (percent of one thread) of every client-id. Raises TruthError."""
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
        """End the Java program that reads JMX."""
        self._child.kill()
        self._child.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parse(text: str) -> dict[str, float]:
    """Parse lines CLIENT-ID=RATE into rates (percent of a thread) by client-id. Raises TruthError."""
    rates = {}
    for line in text.splitlines():
        client_id, equals, rate = line.rpartition("=")
        if not equals:
            raise TruthError(f"not a client's rate: {line!r}")
        rates[client_id] = float(rate)
    return rates


def total_us(percent: float, elapsed_s: float) -> float:
    """Return the request time (µs) that a rate (percent of a thread) means at `elapsed_s` seconds (at most an
    hour) after the client's first request. Kafka's `Rate` divides by the elapsed time plus one window,
    because it counts the older of its two windows as full.
    """
    return percent * _US_PER_PERCENT * (WINDOW_S + elapsed_s)


def _compiled(directory: Path) -> Path:
    (compiler,) = jars.classpath("ecj")
    command = [java_command(), "-jar", str(compiler), "-17", "-d", str(directory), str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    if done.returncode:
        raise TruthError(f"{SOURCE.name} did not compile: {done.stderr.strip()}")
    return directory
