"""What a stream has died of, in one line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from pipeline.outcome import PipelineError

if TYPE_CHECKING:
    from pipeline.ingest.sources import Source

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
