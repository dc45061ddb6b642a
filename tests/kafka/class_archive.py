"""Class-data sharing (CDS): a Kafka version's classes, parsed and verified once, mapped by every later JVM.

The first cluster of a version records the classes that its JVMs load, and writes an archive of them once it
is ready. Java ignores an archive that does not fit its build or the jars, so a bad one only costs time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.kafka.jars import cache_directory

_TIMEOUT_S = 120.0
_QUIET = "-Xlog:cds=off,class+path=off"


class ClassArchive:
    """The archive of one Java and one class path, in the cache directory. Safe beside other processes."""

    def __init__(self, java: str, classpath: Sequence[Path]) -> None:
        self._java = java
        self._classpath = classpath
        self.path = cache_directory() / "class-archives" / f"{_key(java, classpath)}.jsa"

    def options(self) -> list[str]:
        """Options for a JVM whose class path begins with the archive's; empty if there is no archive."""
        return [f"-XX:SharedArchiveFile={self.path}", "-Xshare:auto", _QUIET] if self.path.exists() else []

    @contextmanager
    def to_make(self) -> Iterator[bool]:
        """True if the archive is missing and no other process is about to make it."""
        if self.path.exists():
            yield False
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("wb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield not self.path.exists()

    def make(self, recorded: Iterable[Path], say: Callable[[str], None]) -> None:
        """Write the archive of the classes that JVMs recorded; if Java cannot, `say` hears why."""
        with tempfile.TemporaryDirectory(prefix=".making-", dir=self.path.parent) as directory:
            classes, archive = Path(directory) / "classes", Path(directory) / "archive"
            classes.write_text("".join(dict.fromkeys(_lines(recorded))))
            command = [self._java, "-Xshare:dump", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-Xlog:disable"]
            command += [f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={archive}"]
            command += ["-cp", os.pathsep.join(map(str, self._classpath))]
            try:
                subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=True)
                archive.rename(self.path)
            except (subprocess.SubprocessError, OSError) as error:
                say(f"no class archive, each JVM starts a second later: {error}")


def recording(path: Path) -> list[str]:
    """Options for a JVM that writes the names of the classes it loads to a file."""
    return [f"-XX:DumpLoadedClassList={path}"]


def _lines(recorded: Iterable[Path]) -> Iterator[str]:
    """Whole lines only: the JVMs still write."""
    for path in recorded:
        yield from (line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n"))


def _key(java: str, classpath: Sequence[Path]) -> str:
    """Everything that Java compares before it uses an archive."""
    jars = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in classpath]
    return hashlib.sha256(repr((java, _build(java), jars)).encode()).hexdigest()[:24]


@cache
def _build(java: str) -> str:
    done = subprocess.run([java, "-Xinternalversion"], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
