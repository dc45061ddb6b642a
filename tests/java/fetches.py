"""Java's consumers, of any Kafka release since 1.1, and the log of their fetch sessions (KIP-227).

Each consumer has partitions of its own. They share one Java process and are polled in turn, so that a quota
of their user makes them throttle each other.
"""

from __future__ import annotations

import base64
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.java.worker import run_java

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_CLASS: Final = "org.apache.kafka.clients.FetchSessionHandler"
_LOG4J: Final = Path(__file__).with_name("fetch_sessions.properties")
_LINES: Final = {
    "began": r"Built full fetch \(sessionId=INVALID, epoch=INITIAL\)",
    "unchanged": r"Built incremental fetch .* Added 0 .*, altered 0 .*, removed 0 ",
    "changed": r"Built incremental fetch ",
    "created": r"sent a full fetch response that created a new incremental fetch session",
    "sessionless": r"sent a full fetch response\b",
    "throttled": r"sent an incremental fetch response with throttleTimeMs = [1-9]\d* for session",
    "answered": r"sent an incremental fetch response with throttleTimeMs = 0 for session",
}
"""What the class says while no session is reset. The first pattern that is found names the line."""
_CLIENT: Final = re.compile(r"clientId=([^,\]]+)")
_CLOSES: Final = "to close the existing session"
"""Closing consumers say so since 3.5. Their next lines are about the fetch that ends the session: a broker
answers it with the session's id, which the consumer takes for a new session.
"""


class FetchSessions(NamedTuple):
    counts: Counter[str]
    """Number of lines by the names in `_LINES`."""
    strange: list[str]
    """Lines that do not have such a name: errors, and reset sessions."""


class Fetched(NamedTuple):
    records: dict[int, list[tuple[int, bytes]]]
    """(offset, value) by partition, in the order of their arrival."""
    sessions: FetchSessions


def java_fetches(
    release: str,
    bootstrap: str,
    topic: str,
    shares: Sequence[Sequence[int]],
    count: int,
    config: Mapping[str, str],
    timeout_s: float,
) -> Fetched:
    """Have one consumer for each share of the partitions read them from their beginning, until it has `count`
    records of each or `timeout_s` has passed. Raises ClientError.

    A consumer begins when those before it have read 50 records each.
    """
    with tempfile.TemporaryDirectory(prefix="weir-java-") as directory:
        log = Path(directory) / "sessions.log"
        job = {
            "topic": topic,
            "shares": shares,
            "count": count,
            "config": {"bootstrap.servers": bootstrap} | dict(config),
            "patience_s": timeout_s,
        }
        found = run_java(
            release, "fetches_worker", "Java's consumers", job, timeout_s + 60, _log_options(log)
        )
        sessions = read_sessions(log.read_text())
    records: dict[int, list[tuple[int, bytes]]] = {number: [] for share in shares for number in share}
    for partition, offset, value in found:
        records[partition].append((offset, base64.b64decode(value)))
    return Fetched(records, sessions)


def read_sessions(log: str) -> FetchSessions:
    """Sort the lines of a log by what they say; those of consumers that are closing are left out."""
    counts, strange = Counter[str](), []
    for line in _until_closing(log.splitlines()):
        name = next((name for name, pattern in _LINES.items() if re.search(pattern, line)), None)
        if name is None:
            strange.append(line)
        else:
            counts[name] += 1
    return FetchSessions(counts, strange)


def _until_closing(lines: Iterable[str]) -> Iterator[str]:
    closing = set[str]()
    for line in lines:
        client = found[1] if (found := _CLIENT.search(line)) else ""
        if _CLOSES in line:
            closing.add(client)
        elif client not in closing:
            yield line


def _log_options(log: Path) -> list[str]:
    """Options for Java: for log4j, and for the simple logger that the tests' jars of Kafka 4 have."""
    simple = "-Dorg.slf4j.simpleLogger"
    return [
        f"-Dlog4j.configuration=file:{_LOG4J}",
        f"-Dweir.log={log}",
        f"{simple}.logFile={log}",
        f"{simple}.defaultLogLevel=off",
        f"{simple}.log.{_CLASS}=debug",
    ]
