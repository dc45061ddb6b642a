"""Download the jars that a lock file lists from a Maven repository, verify them, and keep them in a cache.

A lock file has one `group:artifact:version sha256 bytes` per line; `#` starts a comment. Python downloads the
jars without Maven, with Python's certificate authorities and proxy settings.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from weir.pipeline.outcome import PipelineError

_MAVEN_CENTRAL: Final = "https://repo1.maven.org/maven2"
_LINE: Final = re.compile(
    r"(?P<coordinates>[\w.-]+:[\w.-]+:[\w.-]+) (?P<sha256>[0-9a-f]{64}) (?P<size>[0-9]+)"
)
_ATTEMPTS: Final = 3
_TIMEOUT_S: Final = 30.0
_CHUNK_BYTES: Final = 1 << 16


class JarError(PipelineError):
    """Raised if a lock file is malformed, or if a jar is damaged or cannot be downloaded."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One jar of a lock file. `coordinates` is `group:artifact:version`, `size` is in bytes."""

    coordinates: str
    sha256: str
    size: int

    @property
    def path(self) -> str:
        """Path of the jar below a Maven repository, and below the cache."""
        group, artifact, version = self.coordinates.split(":")
        return f"{group.replace('.', '/')}/{artifact}/{version}/{artifact}-{version}.jar"

    def __str__(self) -> str:
        return f"{self.coordinates} {self.sha256} {self.size}"


def parse_lock(text: str, where: str) -> list[Jar]:
    """Return the jars in the `text` of a lock file. Raises JarError, which names the file as `where`, if a
    line is malformed or the file has no jar.
    """
    jars = list[Jar]()
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        match = _LINE.fullmatch(content)
        if match is not None:
            jars.append(Jar(match["coordinates"], match["sha256"], int(match["size"])))
        elif content:
            raise JarError(
                f"{where}:{number}: expected `group:artifact:version sha256 bytes`, found {content!r}"
            )
    if not jars:
        raise JarError(f"{where}: no jar in it; write the lock file again")
    return jars


def fetched(jars: Sequence[Jar], root: Path, what: str, say: Callable[[str], None]) -> list[Path]:
    """Return the paths of the jars in the cache directory `root`; download those that it lacks, after a call
    of `say` with one line of text, in which `what` names the jars. Raises JarError.
    """
    # The hash is not computed again: `fetch_jar` gives a file this name after verifying its hash.
    missing = [jar for jar in jars if not _has_size(root / jar.path, jar.size)]
    if missing:
        say(f"fetching {what}: {sum(jar.size for jar in missing) / 1e6:.1f} MB")
    with ThreadPoolExecutor(8, "jars") as pool:
        try:
            list(pool.map(lambda jar: fetch_jar(jar, root), sorted(missing, key=lambda jar: -jar.size)))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return [root / jar.path for jar in jars]


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def fetch_jar(jar: Jar, root: Path) -> None:
    """Download one jar to its path below `root`. Raises JarError if the download fails or its SHA-256 is not
    the locked one.

    Several processes may download the same jar at once: each writes a file of its own and renames it.
    """
    base = (os.environ.get("WEIR_MAVEN_REPOSITORY") or _MAVEN_CENTRAL).rstrip("/")
    url, target = f"{base}/{jar.path}", root / jar.path
    for attempt in range(_ATTEMPTS):
        try:
            with _new_file(target) as file:
                digest = _download(url, file)
                if digest != jar.sha256:
                    raise JarError(
                        f"{url}: its SHA-256 is {digest}, the lock file says {jar.sha256}; not used"
                    )
            return
        except (OSError, EOFError) as error:
            if attempt + 1 == _ATTEMPTS or (isinstance(error, urllib.error.HTTPError) and error.code < 500):
                raise JarError(
                    f"{url}: {error}. Check the network, or set WEIR_MAVEN_REPOSITORY to a mirror"
                ) from error


@contextmanager
def _new_file(target: Path) -> Iterator[BinaryIO]:
    """Yield a new file for writing; rename it to `target` if the block succeeds, else delete it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _download(url: str, file: BinaryIO) -> str:
    """Copy the content of `url` into `file`; return its SHA-256. Raises OSError, or EOFError if fewer bytes
    arrive than announced.
    """
    digest = hashlib.sha256()
    with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as response:  # noqa: S310 (the operator's repository)
        expected = response.headers.get("Content-Length")
        while chunk := response.read(_CHUNK_BYTES):
            file.write(chunk)
            digest.update(chunk)
    if expected is not None and file.tell() != int(expected):
        raise EOFError(f"ended after {file.tell()} of {expected} bytes")
    return digest.hexdigest()
