"""The jars that one Kafka version runs on, by a lock file; `pipeline.jars` fetches and verifies them.

A lock file is `jars/<version>.txt`. `python -m tests.kafka lock VERSION` writes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from weir.pipeline.jars import Jar, JarError, fetched, parse_lock

__all__ = [
    "LOCK_FILES",
    "Jar",
    "JarError",
    "cache_directory",
    "classpath",
    "fetched",
    "locked_versions",
    "parse_lock",
    "read_lock",
    "version_tuple",
]

LOCK_FILES = Path(__file__).parent / "jars"
_REPOSITORY = Path(__file__).parents[2]


def cache_directory() -> Path:
    """Where downloads stay between runs: $WEIR_CACHE, else `.cache/kafka` in the repository."""
    return Path(os.environ.get("WEIR_CACHE") or _REPOSITORY / ".cache" / "kafka").absolute()


def locked_versions() -> list[str]:
    return sorted((path.stem for path in LOCK_FILES.glob("*.txt")), key=version_tuple)


def version_tuple(version: str) -> tuple[int, ...]:
    """`"0.10.2.2"` as `(0, 10, 2, 2)`, to compare. Raises JarError unless the version is numbers and dots."""
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)+", version):
        raise JarError(f"{version!r} is no Kafka version: expected something like 3.9.1")
    return tuple(int(part) for part in version.split("."))


def read_lock(version: str) -> list[Jar]:
    """The jars of a Kafka version. Raises JarError if it is not locked."""
    path = LOCK_FILES / f"{version}.txt"
    if not path.is_file():
        raise JarError(
            f"Kafka {version} is not locked; there are {', '.join(locked_versions())}. "
            f"To add it: python -m tests.kafka lock {version}"
        )
    return parse_lock(path.read_text(), f"tests/kafka/jars/{path.name}")


def classpath(version: str, say: Callable[[str], None] = print) -> list[Path]:
    """Paths of a version's jars, fetched if need be; `say` hears of a download. Raises JarError."""
    return fetched(read_lock(version), cache_directory(), f"Kafka {version}", say)
