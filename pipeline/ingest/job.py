"""Records into the lake's tables, each exactly once: from files or topics, by Structured Streaming.

`sources` says where from, `parse` what a record is, `ledger` what is late,
`batch` how a batch is written, `checkpoint` when not to begin. This is the loop around them.
"""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException

from pipeline.files import Files
from pipeline.ingest.batch import Batches
from pipeline.ingest.checkpoint import check
from pipeline.ingest.parse import KINDS, parsed
from pipeline.outcome import Outcome, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pipeline.ingest.sources import Source
    from pipeline.lake import Lake

LATE_AFTER_S: Final = 600.0
LOOK_S: Final = 0.2
"""How often the streams are asked whether they have ended."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When batches begin, and when it ends."""

    every_s: float | None = None
    """None: all that is there now, and then the end."""
    stop: threading.Event | None = None
    """Once it is set, the batches that have begun are finished, and then it ends."""


def ingest(
    spark: SparkSession,
    lake: Lake,
    source: Source,
    *,
    kinds: Sequence[str] = tuple(KINDS),
    pace: Pace = Pace(),
    late_after_s: float = LATE_AFTER_S,
    say: Callable[[str], None] = lambda _line: None,
) -> Outcome:
    """Take records; `say` hears of each batch. Raises PipelineError."""
    source.check(spark)
    files = Files(spark)
    takers = {kind: Batches(lake, KINDS[kind], round(late_after_s * 1000), say) for kind in kinds}
    with ExitStack() as locks:
        for kind in kinds:
            locks.enter_context(files.locked(f"{lake.checkpoint(kind)}/.weir-lock"))
            check(files, lake, kind, source.name(kind))
        _run(spark, lake, source, takers, pace)
    return _outcome(lake, takers)


def _run(spark: SparkSession, lake: Lake, source: Source, takers: Mapping[str, Batches], pace: Pace) -> None:
    stop = pace.stop or threading.Event()
    queries: dict[str, StreamingQuery] = {}
    with _until_signalled(stop):
        try:
            for kind, taker in takers.items():
                queries[kind] = _start(spark, lake, source, kind, taker, pace)
            _wait(queries, stop)
        except StreamingQueryException as error:
            failures = [taker.failure for taker in takers.values() if taker.failure is not None]
            raise explained(failures[0] if failures else error, source) from None
        finally:
            for query in queries.values():
                query.stop()


def _start(
    spark: SparkSession, lake: Lake, source: Source, kind: str, taker: Batches, pace: Pace
) -> StreamingQuery:
    rows = parsed(source.stream(spark, kind), KINDS[kind])
    writer = (
        rows.writeStream.queryName(f"ingest {kind}")
        .foreachBatch(taker.take)
        .option("checkpointLocation", lake.checkpoint(kind))
    )
    if pace.every_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{round(pace.every_s * 1000)} milliseconds").start()


def _wait(queries: Mapping[str, StreamingQuery], stop: threading.Event) -> None:
    """Until all have ended, or are between two batches once `stop` is set. Raises StreamingQueryException."""
    running = list(queries.values())
    while running:
        stop.wait(LOOK_S) if not stop.is_set() else threading.Event().wait(LOOK_S)
        for query in tuple(running):
            if not query.isActive:
                query.awaitTermination()  # raises what it has ended of
                running.remove(query)
            elif stop.is_set() and not query.status["isTriggerActive"]:
                query.stop()


@contextmanager
def _until_signalled(stop: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM set `stop`; a second one interrupts."""

    def on_signal(number: int, frame: FrameType | None) -> None:
        del number, frame
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _outcome(lake: Lake, takers: Mapping[str, Batches]) -> Outcome:
    wrote, where = dict[str, int](), dict[str, str]()
    for kind, taker in takers.items():
        wrote[f"{kind} records"] = taker.counts.good
        where[f"{kind} records"] = lake.path(kind)
        for what, count, path in (
            ("late", taker.counts.late, lake.late(kind)),
            ("malformed", taker.counts.malformed, lake.malformed(kind)),
        ):
            if count:
                wrote[f"{what} {kind}"], where[f"{what} {kind}"] = count, path
    return Outcome(
        "ingest",
        read={f"{kind} lines": taker.counts.read for kind, taker in takers.items()},
        wrote=wrote,
        where=where,
        notes=tuple(_notes(takers)),
    )


def _notes(takers: Mapping[str, Batches]) -> Iterator[str]:
    for kind, taker in takers.items():
        if taker.counts.malformed:
            yield f"malformed {kind}: lines that are no records; the column reason says why"
        if taker.counts.late:
            yield f"late {kind}: left out of the tables; a greater --late-after takes more of them"
    if not any(taker.counts.read for taker in takers.values()):
        yield "nothing new"


_KNOWN: Final = (
    ("UnknownTopicOrPartition", "the topic does not exist: is Weir writing to it?"),
    (
        "FILE_NOT_EXIST|FileNotFoundException.*jsonl|does not exist.*jsonl",
        "a file was deleted before it was read; --skip-lost goes on without it",
    ),
    (
        "KAFKA_DATA_LOSS|data may have been lost|DATA_LOSS",
        "Kafka has deleted records before they were read; --skip-lost goes on without them",
    ),
    ("TimeoutException|No resolvable bootstrap", "no broker answers"),
    ("SaslAuthenticationException", "the brokers refuse the login"),
    ("SslAuthenticationException|SSLHandshakeException", "TLS failed"),
    ("AuthorizationException", "the brokers allow it not"),
    ("Concurrent update to the log|CONCURRENT_STREAM_LOG_UPDATE", "another ingest is at work on this lake"),
)


def explained(error: Exception, source: Source) -> Exception:
    """Name the cause, if it is a known one. What is no error of Spark's is a bug, or explained already."""
    if not isinstance(error, PySparkException | Py4JError):
        return error
    text = str(error)
    for pattern, meaning in _KNOWN:
        if re.search(pattern, text, re.DOTALL):
            return PipelineError(f"{source.name('usage')}: {meaning} ({_cause(text)})")
    return PipelineError(f"{source.name('usage')}: Spark has given up: {_cause(text)}")


def _cause(text: str) -> str:
    """The innermost exception of a Java stack trace, or else the first line."""
    causes = re.findall(r"^Caused by: (.*)$", text, re.MULTILINE)
    line: str = causes[-1] if causes else text.strip().partition("\n")[0]
    return line[:300]
