"""Provide the jars of Delta Lake, of Spark's Kafka connector and of S3, which PySpark does not contain.

`spark-submit --packages` would download them with Java, which does not trust the machine's certificate
authorities, and finds no token provider of the connector's release. Therefore `jars.txt` and, for paths on S3
only, `jars_s3.txt` lock their versions. Python downloads the jars from a Maven repository, with its own
certificate authorities and proxy settings, verifies them, and keeps them in a cache.

A lock file has one `group:artifact:version[:classifier] sha256 bytes` per line; `#` starts a comment.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Final

from weir.pipeline.outcome import PipelineError

CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.2"
DELTA: Final = "io.delta:delta-spark_2.13:4.0.0"
S3: Final = "s3a://"
"""Beginning of the paths for which the jars of S3 are needed."""
JARS: Final = "spark.jars"
"""Name of the Spark setting with the jars to load."""
_MAVEN_CENTRAL: Final = "https://repo1.maven.org/maven2"
_LINE: Final = re.compile(
    r"(?P<coordinates>[\w.-]+(?::[\w.-]+){2,3}) (?P<sha256>[0-9a-f]{64}) (?P<size>[0-9]+)"
)
_ATTEMPTS: Final = 3
_TIMEOUT_S: Final = 30.0


class JarError(PipelineError):
    """Raised if a lock file is malformed, or if a jar is damaged or cannot be downloaded."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One jar of a lock file. `coordinates` is `group:artifact:version[:classifier]`, `size` is in bytes."""

    coordinates: str
    sha256: str
    size: int

    @property
    def path(self) -> str:
        """Path of the jar below a Maven repository, and below the cache."""
        group, artifact, version, *classifier = self.coordinates.split(":")
        name = "-".join([artifact, version, *classifier])
        return f"{group.replace('.', '/')}/{artifact}/{version}/{name}.jar"

    def __str__(self) -> str:
        return f"{self.coordinates} {self.sha256} {self.size}"


def locked(*, s3: bool = False) -> list[Jar]:
    """Return the jars in the lock file `jars.txt`; with `s3`, also those in `jars_s3.txt`."""
    return [
        jar
        for name in (("jars.txt", "jars_s3.txt") if s3 else ("jars.txt",))
        for jar in parse_lock(files("weir.pipeline").joinpath(name).read_text("utf-8"), f"pipeline/{name}")
    ]


def parse_lock(text: str, where: str) -> list[Jar]:
    """Return the jars in a lock file's `text`. Raises JarError, which names the file as `where`."""
    jars = list[Jar]()
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        match = _LINE.fullmatch(content)
        if match is not None:
            jars.append(Jar(match["coordinates"], match["sha256"], int(match["size"])))
        elif content:
            raise JarError(
                f"{where}:{number}: expected `group:artifact:version[:classifier] sha256 bytes`, "
                f"found {content!r}"
            )
    if not jars:
        raise JarError(f"{where}: no jar in it; write the lock file again")
    return jars


def cache_directory() -> Path:
    """Return the directory for jars: $WEIR_CACHE, else below $XDG_CACHE_HOME, else below ~/.cache."""
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
    return fetched(locked(s3=s3), cache_directory(), "Spark's jars", partial(print, file=sys.stderr))


def loading(jars: Sequence[Path]) -> dict[str, str]:
    """Return the Spark settings that load these jars. Raises PipelineError if a path has a comma."""
    for path in jars:
        if "," in str(path):
            raise PipelineError(f"{path}: Spark takes no jar with a comma in its path")
    return {JARS: ",".join(map(str, jars))}


def fetched(jars: Sequence[Jar], root: Path, what: str, say: Callable[[str], None]) -> list[Path]:
    """Return the paths of the jars in the cache directory `root`; download those that it lacks, after a call
    of `say` with one line of text, in which `what` names the jars. Raises JarError.
    """
    paths = {jar: root / jar.path for jar in jars}
    # The hash is not computed again: `fetch_jar` gives a file this name after verifying its hash.
    missing = [jar for jar, path in paths.items() if not path.is_file() or path.stat().st_size != jar.size]
    if missing:
        say(f"fetching {what}: {sum(jar.size for jar in missing) / 1e6:.1f} MB")
    with ThreadPoolExecutor(8, "jars") as pool:
        # An error cancels the downloads that have not begun.
        list(pool.map(lambda jar: fetch_jar(jar, root), sorted(missing, key=lambda jar: -jar.size)))
    return list(paths.values())


def fetch_jar(jar: Jar, root: Path) -> None:
    """Download one jar to its path below `root`. Raises JarError if the download fails or its SHA-256 is not
    the locked one.

    Several processes may download the same jar at once: each writes a file of its own and renames it.
    """
    base = (os.environ.get("WEIR_MAVEN_REPOSITORY") or _MAVEN_CENTRAL).rstrip("/")
    url, target = f"{base}/{jar.path}", root / jar.path
    for attempt in range(_ATTEMPTS):
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".", dir=target.parent) as directory:
                part = Path(directory, "part")
                digest = _download(url, part)
                if digest != jar.sha256:
                    raise JarError(
                        f"{url}: its SHA-256 is {digest}, the lock file says {jar.sha256}; not used"
                    )
                part.replace(target)
            return
        except (OSError, EOFError) as error:
            if attempt + 1 == _ATTEMPTS or (isinstance(error, urllib.error.HTTPError) and error.code < 500):
                raise JarError(
                    f"{url}: {error}. Check the network, or set WEIR_MAVEN_REPOSITORY to a mirror"
                ) from error


def _download(url: str, path: Path) -> str:
    """Copy a URL's content to a new file; return its SHA-256. Raises OSError, EOFError if cut short."""
    with (
        urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response,  # noqa: S310 (the operator's repository)
        path.open("w+b") as file,
    ):
        shutil.copyfileobj(response, file)
        expected = response.headers.get("Content-Length")
        if expected is not None and file.tell() != int(expected):
            raise EOFError(f"ended after {file.tell()} of {expected} bytes")
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()
