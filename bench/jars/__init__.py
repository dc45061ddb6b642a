"""Jars of the Java proxies that are measured: locked lists, fetched from a Maven repository, verified.

A list is `<name>.txt`: one `group:artifact:version[:classifier] sha256 bytes` per line, `#` starts a comment.
`python -m bench.jars.lock` writes it. The cache, the mirror and the check are those of `tests.kafka.jars`.
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
    """A jar whose coordinates may end with a classifier: native code for one kind of machine."""

    @property
    def path(self) -> str:
        """Where a Maven repository keeps it."""
        group, artifact, version, *classifier = self.coordinates.split(":")
        name = "-".join([artifact, version, *classifier])
        return f"{group.replace('.', '/')}/{artifact}/{version}/{name}.jar"


def parse(text: str, where: str) -> list[ClassifiedJar]:
    """The jars of a list's `text`; `where` names it in errors. Raises JarError."""
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
    """Paths of a list's jars, fetched if need be. Raises JarError."""
    file, root = LISTS / f"{name}.txt", cache_directory()
    jars = parse(file.read_text(), f"bench/jars/{file.name}")
    _fetch([jar for jar in jars if not (root / jar.path).is_file()], root)
    return [root / jar.path for jar in jars]


def _fetch(jars: Iterable[Jar], root: Path) -> None:
    """A file gets its name only after its hash was right, so it is missing or whole."""
    with ThreadPoolExecutor(8, "jars") as pool:
        list(pool.map(lambda jar: fetch_jar(jar, root, lambda _count: None), jars))
