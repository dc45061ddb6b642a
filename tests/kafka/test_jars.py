"""Lock files, downloads and what can be wrong with them. No broker: the repository is on the loopback."""

from __future__ import annotations

import hashlib
import http.server
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.kafka import jars
from tests.kafka.jars import Jar, JarError
from tests.kafka.lock import _UNNEEDED, _roots

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CONTENT = b"a jar, more or less"
JAR = Jar("org.example:thing:1.0", hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


class Silent(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name in the standard library)
        pass


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a Maven repository that is served and asked instead of Maven Central."""
    root = tmp_path / "repository"
    root.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(root))) as server:
        thread = threading.Thread(target=partial(server.serve_forever, 0.01))
        thread.start()
        monkeypatch.setenv("WEIR_MAVEN_REPOSITORY", f"http://127.0.0.1:{server.server_port}/")
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        yield root
        server.shutdown()
        thread.join()


def publish(repository: Path, jar: Jar, content: bytes) -> None:
    path = repository / jar.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def everything_below(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*") if path.is_file())


def test_a_jar_lies_where_maven_puts_it() -> None:
    assert JAR.path == "org/example/thing/1.0/thing-1.0.jar"


def test_a_lock_file_says_what_was_written_to_it() -> None:
    assert jars.parse_lock(f"# comment\n\n{JAR}  # why\n", "here") == [JAR]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "here: no jar in it"),
        ("# only words\n", "here: no jar in it"),
        (f"\norg.example:thing {'0' * 64} 1\n", "here:2: expected"),
        ("org.example:thing:1.0 abc 1\n", "here:1: expected"),
        (f"org.example:thing:1.0 {'0' * 64}\n", "here:1: expected"),
        (f"../../etc:thing/..:1.0 {'0' * 64} 1\n", "here:1: expected"),
    ],
)
def test_a_damaged_lock_file_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(JarError, match=message):
        jars.parse_lock(text, "here")


@pytest.mark.parametrize("version", jars.locked_versions())
def test_every_lock_file_holds_one_broker_of_its_version(version: str) -> None:
    locked = jars.read_lock(version)
    names = [":".join(jar.coordinates.split(":")[:2]) for jar in locked]
    assert len(set(names)) == len(names)
    broker = _roots(version)[0]
    assert broker in [jar.coordinates for jar in locked]
    assert not [jar for jar in locked if _UNNEEDED.fullmatch(jar.coordinates)]


def test_versions_are_in_order_of_age() -> None:
    assert jars.locked_versions()[0] == "0.10.2.2"
    assert sorted(["4.2.0", "0.10.2.2", "0.9.0.1"], key=jars.version_tuple) == [
        "0.9.0.1",
        "0.10.2.2",
        "4.2.0",
    ]


@pytest.mark.parametrize("version", ["", "3", "latest", "3.9.1/..", "3.9.1-rc0"])
def test_what_is_no_version_is_refused(version: str) -> None:
    with pytest.raises(JarError, match="is no Kafka version"):
        jars.version_tuple(version)


def test_an_unlocked_version_is_named_with_the_way_out() -> None:
    with pytest.raises(JarError, match=r"Kafka 9\.9\.9 is not locked; there are .*3\.9\.1.* lock 9\.9\.9"):
        jars.read_lock("9.9.9")


def test_a_jar_is_fetched(repository: Path, tmp_path: Path) -> None:
    publish(repository, JAR, CONTENT)
    jars.fetch_jar(JAR, tmp_path / "cache")
    assert (tmp_path / "cache" / JAR.path).read_bytes() == CONTENT
    assert everything_below(tmp_path / "cache") == ["thing-1.0.jar"]


def test_a_jar_with_another_hash_is_not_kept(repository: Path, tmp_path: Path) -> None:
    publish(repository, JAR, b"tampered with")
    with pytest.raises(JarError, match=r"thing-1\.0\.jar: its SHA-256 is [0-9a-f]{64}, the lock file says"):
        jars.fetch_jar(JAR, tmp_path / "cache")
    assert everything_below(tmp_path / "cache") == []


def test_a_missing_jar_is_named_with_the_way_out(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(JarError, match=r"thing-1\.0\.jar: .*404.*WEIR_MAVEN_REPOSITORY"):
        jars.fetch_jar(JAR, tmp_path / "cache")
    assert everything_below(tmp_path / "cache") == []


def test_many_may_fetch_the_same_jar_at_once(repository: Path, tmp_path: Path) -> None:
    publish(repository, JAR, CONTENT)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: jars.fetch_jar(JAR, tmp_path / "cache"), range(32)))
    assert everything_below(tmp_path / "cache") == ["thing-1.0.jar"]


def test_the_classpath_is_fetched_once(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(repository, JAR, CONTENT)
    monkeypatch.setenv("WEIR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars, "LOCK_FILES", tmp_path)
    (tmp_path / "1.0.txt").write_text(f"{JAR}\n")
    said: list[str] = []
    expected = [tmp_path / "cache" / JAR.path]
    assert jars.classpath("1.0", said.append) == expected
    (repository / JAR.path).unlink()
    assert jars.classpath("1.0", said.append) == expected
    assert said == ["fetching Kafka 1.0: 0.0 MB"]
