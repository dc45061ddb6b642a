"""Provide the jars of Delta Lake, of Spark's Kafka connector and of S3, which PySpark does not contain.

`spark-submit --packages` would download them with Java, which does not trust the machine's certificate
authorities. Therefore `jars.txt` locks their versions, and Python downloads them. The jars of `jars_s3.txt`
are for paths on S3 only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Final

from weir.pipeline.locked_jars import Jar, fetched, parse_lock
from weir.pipeline.outcome import PipelineError

CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.2"
DELTA: Final = "io.delta:delta-spark_2.13:4.0.0"
PACKAGES: Final = f"{DELTA},{CONNECTOR}"
"""Maven coordinates of Delta Lake and the connector, for `spark-submit --packages`."""
S3: Final = "s3a://"
"""Beginning of the paths for which the jars of S3 are needed."""
JARS: Final = "spark.jars"
"""Name of the Spark setting with the jars to load."""


def locked(*, s3: bool = False) -> list[Jar]:
    """Return the jars in the lock file `jars.txt`; with `s3`, also those in `jars_s3.txt`."""
    found = list[Jar]()
    for name in ("jars.txt", "jars_s3.txt") if s3 else ("jars.txt",):
        found += parse_lock(files("weir.pipeline").joinpath(name).read_text("utf-8"), f"pipeline/{name}")
    return found


def cache_directory() -> Path:
    """Return the directory for downloaded jars: $WEIR_CACHE, else below $XDG_CACHE_HOME, else below
    ~/.cache.
    """
    if chosen := os.environ.get("WEIR_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "kafka-weir" / "jars"


def provided(brought: Sequence[Path] = (), *, s3: bool = False) -> list[Path]:
    """Return the paths of the jars: `brought`, the jars that the caller has, if not empty; else the locked
    jars (with `s3`, also those for S3), after a download of those that are missing, which a line on standard
    error says. Raises PipelineError if a jar in `brought` does not exist, or a download fails.
    """
    for path in brought:
        if not path.is_file():
            raise PipelineError(f"{path}: no such jar")
    if brought:
        return [path.absolute() for path in brought]
    to_stderr = partial(print, file=sys.stderr)
    return fetched(locked(s3=s3), cache_directory(), "Spark's jars", to_stderr)


def loading(jars: Sequence[Path]) -> dict[str, str]:
    """Return the Spark settings that load these jars. Raises PipelineError if a path has a comma, because
    Spark splits the setting at commas.
    """
    for path in jars:
        if "," in str(path):
            raise PipelineError(f"{path}: Spark takes no jar with a comma in its path")
    return {JARS: ",".join(map(str, jars))}
