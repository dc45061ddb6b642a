"""Provide the jars of Spark's Kafka connector, which PySpark does not contain.

`spark-submit --packages` would download them with Java, which does not trust the machine's certificate
authorities. Therefore `jars.txt` locks their versions, and Python downloads them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from weir.pipeline.locked_jars import Jar, fetched, parse_lock
from weir.pipeline.outcome import PipelineError

CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
"""Maven coordinates of the connector, for `spark-submit --packages`."""


def locked() -> list[Jar]:
    """Return the jars in the lock file `pipeline/jars.txt`."""
    return parse_lock(files("weir.pipeline").joinpath("jars.txt").read_text("utf-8"), "pipeline/jars.txt")


def cache_directory() -> Path:
    """Return the directory for downloaded jars: $WEIR_CACHE, else below $XDG_CACHE_HOME, else below
    ~/.cache.
    """
    if chosen := os.environ.get("WEIR_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "kafka-weir" / "jars"


def connector(brought: Sequence[Path], say: Callable[[str], None]) -> list[Path]:
    """Return the paths of the connector's jars: `brought` if not empty, else the locked jars; download those
    that are missing.

    `say` is called with the progress of long downloads. Raises PipelineError if a jar in `brought` does not
    exist, or a download fails.
    """
    for path in brought:
        if not path.is_file():
            raise PipelineError(f"{path}: no such jar")
    if brought:
        return [path.absolute() for path in brought]
    return fetched(locked(), cache_directory(), "Spark's Kafka connector", say)


def settings(jars: Sequence[Path]) -> dict[str, str]:
    """Return the Spark settings that load these jars. Raises PipelineError if a path has a comma, because
    Spark splits the setting at commas.
    """
    for path in jars:
        if "," in str(path):
            raise PipelineError(f"{path}: Spark takes no jar with a comma in its path")
    return {"spark.jars": ",".join(map(str, jars))}
