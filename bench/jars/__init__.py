"""Provide the jars of Java programs by lock files `<name>.txt`, which `python -m bench.jars.lock` writes, and
compile such programs. `pipeline.jars` fetches and verifies the jars.
"""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path
from sys import stderr
from typing import Final

from tests.kafka.jars import JarError, cache_directory, fetched, parse_lock
from tests.kafka.java import java_command

LISTS: Final = Path(__file__).parent
COMPILE_S: Final = 60.0


def classpath(name: str) -> list[Path]:
    """Return the paths of a lock file's jars; fetch missing jars first. Raises JarError."""
    file = LISTS / f"{name}.txt"
    jars = parse_lock(file.read_text(), f"bench/jars/{file.name}")
    return fetched(jars, cache_directory(), name, partial(print, file=stderr))


def compiled(source: Path, directory: Path, name: str | None = None) -> str:
    """Compile a program into `directory`, and return its class path, with the jars of the lock file `name`.
    Raises JarError.

    A Java runtime suffices, because the compiler (ecj) is also a jar.
    """
    (compiler,) = classpath("ecj")
    path = ":".join(map(str, [directory, *(classpath(name) if name else ())]))
    command = [java_command(), "-jar", str(compiler), "-17", "-cp", path, "-d", str(directory), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_S, check=False)
    if done.returncode:
        raise JarError(f"{source.name} did not compile: {done.stderr.strip()}")
    return path
