"""The jars of Spark's Kafka connector, which PySpark does not contain.

`--packages` would download them with Java, which does not trust the certificate authorities of the machine.
Therefore `jars.txt` locks their versions, and Python downloads them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from pipeline.locked_jars import Jar, fetched, parse_lock
from pipeline.outcome import PipelineError

CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
"""Value of `spark-submit --packages` for the connector."""


def locked() -> list[Jar]:
    """Return the jars of the lock file."""
    return parse_lock(files("pipeline").joinpath("jars.txt").read_text("utf-8"), "pipeline/jars.txt")


def cache_directory() -> Path:
    """Return the directory of downloaded jars: $WEIR_CACHE, else below $XDG_CACHE_HOME, else below
    ~/.cache.
    """
    if chosen := os.environ.get("WEIR_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "kafka-weir" / "jars"


def connector(brought: Sequence[Path], say: Callable[[str], None]) -> list[Path]:
    """Return the paths of the connector's jars: `brought` if not empty, else the locked jars, which are
    downloaded if missing.

    `say` is called with the progress of long downloads. Raises PipelineError.
    """
    for path in brought:
        if not path.is_file():
            raise PipelineError(f"{path}: no such jar")
    if brought:
        return [path.absolute() for path in brought]
    return fetched(locked(), cache_directory(), "Spark's Kafka connector", say)


def settings(jars: Sequence[Path]) -> dict[str, str]:
    """Return the Spark settings that load these jars. Raises PipelineError for a path with a comma, which
    Spark would split.
    """
    for path in jars:
        if "," in str(path):
            raise PipelineError(f"{path}: Spark takes no jar with a comma in its path")
    return {"spark.jars": ",".join(map(str, jars))}
