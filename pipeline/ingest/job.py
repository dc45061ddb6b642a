"""Run the streams of ingest until they end: `sources` reads files or messages, `lines` splits files, `parse`
validates records, `batch` writes tables.
"""

from __future__ import annotations

import hashlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from weir.pipeline.ingest.batch import Batches
from weir.pipeline.ingest.parse import KINDS, RULES, Rules, parsed
from weir.pipeline.ingest.sources import Directory, Source
from weir.pipeline.lake import Lake
from weir.pipeline.outcome import Outcome, PipelineError

LOOK_S: Final = 0.2
"""Time (s) between two checks of Spark's streams for their end."""


def ingest(
    spark: SparkSession,
    lake: Lake,
    source: Source,
    *,
    kinds: Sequence[str] = tuple(KINDS),
    cluster: str = "default",
    every_s: float | None = None,
    stop: threading.Event | None = None,
    rules: Rules = RULES,
    say: Callable[[str], None] = lambda _line: None,
) -> Outcome:
    """Ingest the records of these `kinds` (usage, trace) of a Kafka cluster into the tables. Without
    `every_s`, end when all existing records are read; else run a batch every `every_s` (s). A signal or the
    event `stop` ends the run after the batches in progress. `say` is called with one line of text per batch,
    and per sort of files that are not read. Raises PipelineError if the source or the directory of the
    tables is unsuitable, or Spark fails.
    """
    unread = tuple(source.unread(spark)) if isinstance(source, Directory) else ()
    for line in unread:
        say(line)
    takers = {kind: Batches(lake, KINDS[kind], cluster, say) for kind in kinds}
    stop = stop or threading.Event()
    queries: list[StreamingQuery] = []
    with _until_signalled(stop):
        try:
            for kind, taker in takers.items():
                rows = source.stream(spark, kind)
                files, skip_lost = isinstance(source, Directory), source.skip_lost
                rows = parsed(rows, KINDS[kind], rules, files=files, skip_lost=skip_lost)
                # Each source has a checkpoint of its own.
                name = hashlib.sha256(f"{cluster}\n{source.name(kind)}".encode()).hexdigest()[:16]
                path = lake.path("checkpoint", "ingest", f"{kind}-{name}")
                writer = rows.writeStream.queryName(f"ingest {kind}").option("checkpointLocation", path)
                if every_s is None:
                    writer = writer.trigger(availableNow=True)
                else:
                    writer = writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
                queries.append(writer.foreachBatch(taker.take).start())
                taker.app_id.set_result(queries[-1].id)
            _wait(queries, stop)
        except StreamingQueryException as error:
            failures = [taker.failure for taker in takers.values() if taker.failure is not None]
            raise explained(failures[0] if failures else error, source) from None
        finally:
            for query in queries:
                query.stop()
    return _outcome(lake, takers, unread)


def _wait(queries: Sequence[StreamingQuery], stop: threading.Event) -> None:
    """Wait until all streams have ended. If the event `stop` is set meanwhile, end each stream after its
    current batch. Raises StreamingQueryException if a stream fails.
    """
    running = list(queries)
    while running:
        time.sleep(LOOK_S)
        for query in tuple(running):
            if not query.isActive:
                query.awaitTermination()  # raises the stream's exception
                running.remove(query)
            elif stop.is_set() and not query.status["isTriggerActive"]:
                query.stop()


@contextmanager
def _until_signalled(stop: threading.Event) -> Iterator[None]:
    """In the main thread, set `stop` at SIGINT or SIGTERM; raise KeyboardInterrupt at a second signal."""

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


def _outcome(lake: Lake, takers: Mapping[str, Batches], unread: Sequence[str]) -> Outcome:
    wrote, where, notes = dict[str, int](), dict[str, str](), list(unread)
    for kind, taker in takers.items():
        seen = taker.counts
        wrote[f"{kind} records"], where[f"{kind} records"] = seen.new, lake.path(kind)
        if seen.rejected:
            wrote[f"rejected {kind}"], where[f"rejected {kind}"] = seen.rejected, lake.rejected
            notes.append(
                f"rejected {kind}: lines that are no valid records; the column reason has the reasons"
            )
        if seen.duplicates:
            notes.append(f"duplicates: {seen.duplicates:,} {kind} records were in the tables already")
    read = {f"{kind} lines": taker.counts.read for kind, taker in takers.items()}
    if not any(read.values()):
        notes.append("nothing new")
    return Outcome("ingest", read, wrote, where, tuple(notes))


_KNOWN: Final = (
    ("UnknownTopicOrPartition", "the topic does not exist: is Weir writing to it?"),
    (
        "FILE_NOT_EXIST|FileNotFoundError|FileNotFoundException.*jsonl|does not exist.*jsonl",
        "a file was deleted before it was read; --skip-lost goes on without it",
    ),
    (
        "KAFKA_DATA_LOSS|data may have been lost|DATA_LOSS",
        "Kafka has deleted records before they were read; --skip-lost goes on without them",
    ),
    ("TimeoutException|No resolvable bootstrap", "no broker answers"),
    ("SaslAuthenticationException", "the brokers refuse the login"),
    ("SslAuthenticationException|SSLHandshakeException", "TLS failed"),
    ("AuthorizationException", "the brokers do not allow it"),
    ("Concurrent update to the log|CONCURRENT_STREAM_LOG_UPDATE", "another ingest is running on this lake"),
)


def explained(error: Exception, source: Source) -> Exception:
    """Return a PipelineError that explains an error of Spark; return any other error unchanged."""
    if not isinstance(error, PySparkException | Py4JError):
        return error
    text = str(error)
    for pattern, meaning in _KNOWN:
        if re.search(pattern, text, re.DOTALL):
            return PipelineError(f"{source.name('usage')}: {meaning} ({_cause(text)})")
    return PipelineError(f"{source.name('usage')}: Spark failed: {_cause(text)}")


def _cause(text: str) -> str:
    """Return the innermost exception of a stack trace, or a text's first line; at most 300 characters."""
    causes = re.findall(r"^Caused by: (.*)$", text, re.MULTILINE)
    line: str = causes[-1] if causes else text.strip().partition("\n")[0]
    return line[:300]
