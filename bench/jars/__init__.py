"""Fetch the jars of Java targets from a Maven repository, and verify them against locked lists.

A list is `<name>.txt`: one `group:artifact:version[:classifier] sha256 bytes` per line, `#` starts a comment.
`python -m bench.jars.lock` writes the lists. `tests.kafka.jars` has the cache, the repository's address, and
the check of the hash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.kafka.jars import Jar, JarError, cache_directory, fetch_jar

LISTS: Final = Path(__file__).parent
_LINE: Final = re.compile(r"([\w.-]+(?::[\w.-]+){2,3}) ([0-9a-f]{64}) ([0-9]+)")


@dataclass(frozen=True, slots=True)
class ClassifiedJar(Jar):
    """A jar whose coordinates may end with a classifier, for native code of one platform."""

    @property
    def path(self) -> str:
        """Path of the jar in a Maven repository."""
        group, artifact, version, *classifier = self.coordinates.split(":")
        name = "-".join([artifact, version, *classifier])
        return f"{group.replace('.', '/')}/{artifact}/{version}/{name}.jar"


def parse(text: str, where: str) -> list[ClassifiedJar]:
    """Return the jars of a list's `text`; `where` names the list in errors. Raises JarError."""
    lines = [content for line in text.splitlines() if (content := line.partition("#")[0].strip())]
    return [_parse_line(line, where) for line in lines]


def _parse_line(line: str, where: str) -> ClassifiedJar:
    match = _LINE.fullmatch(line)
    if match is None:
        raise JarError(
            f"{where}: expected `group:artifact:version[:classifier] sha256 bytes`, found {line!r}"
        )
    return ClassifiedJar(match[1], match[2], int(match[3]))


def classpath(name: str) -> list[Path]:
    """Return the paths of a list's jars; fetch missing jars first. Raises JarError."""
    file, root = LISTS / f"{name}.txt", cache_directory()
    jars = parse(file.read_text(), f"bench/jars/{file.name}")
    _fetch([jar for jar in jars if not (root / jar.path).is_file()], root)
    return [root / jar.path for jar in jars]


def _fetch(jars: Iterable[Jar], root: Path) -> None:
    """Fetch a jar unless it is in the cache. A file gets its final name only after its hash was verified, so
    the cache has no incomplete file.
    """
    with ThreadPoolExecutor(8, "jars") as pool:
        list(pool.map(lambda jar: fetch_jar(jar, root), jars))
