"""Build the objects that record usage, as the configuration describes: outlet, writer and recorder."""

from __future__ import annotations

import re
import secrets
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog
import trio

from weir.proxy.config.settings import IN_TOPIC, OF_TRACES, ConfigError
from weir.proxy.control.stores.topic import REPLICAS_MAX, cluster_facts
from weir.proxy.control.usage import directory
from weir.proxy.control.usage.files import FileClocks, FileRules, UsageFiles
from weir.proxy.control.usage.recorder import Clocks, Registries, UsageRecorder
from weir.proxy.control.usage.tally import Kind, Tally, WritingReport
from weir.proxy.control.usage.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from weir.proxy.config.config import Config
    from weir.proxy.config.settings import Settings
    from weir.proxy.control.stores.topic_log import Properties
    from weir.proxy.control.supervisor import Supervisor
    from weir.proxy.control.usage.outlet import Outlet

log = structlog.get_logger("weir.usage")

ROTATE_S: Final = 60.0
"""Time (s) after which a file is finished: readers see records this late."""
ROTATE_BYTES: Final = 64 * 1024 * 1024
"""Size (bytes) at which a file is finished."""
QUEUE_RECORDS: Final = 100_000
"""Number of records that may wait for the disk or the cluster; more are dropped and counted."""
HOST_MAX: Final = 40


class Recording(NamedTuple):
    """The objects that record usage, built but not yet started."""

    writer: Writer
    instance: str
    interval_ms: int

    def recorder(
        self, registries: Registries, session_ms: Callable[[], int], supervisor: Supervisor
    ) -> UsageRecorder:
        """Return the recorder; its first interval begins now. `session_ms` is the connections' clock (ms)."""
        log.info("recording usage", to=self.writer.outlet.name, instance=self.instance)
        report = WritingReport(self.writer.tally, self.writer.outlet.name, time.monotonic)
        clocks = Clocks(lambda: time.time_ns() // 1_000_000, session_ms)
        return UsageRecorder(
            registries, self.writer, self.instance, self.interval_ms, clocks, report, supervisor
        )


def recording(config: Config) -> Recording | None:
    """Build the objects that record usage; return None if the configuration does not ask for usage records.
    Raises ConfigError.
    """
    if not config.records_usage:
        return None
    settings = config.settings
    tally, instance = Tally(), new_instance(socket.gethostname(), time.time(), secrets.token_hex(3))
    is_topic = settings.usage.startswith(IN_TOPIC)
    outlet = _topic(config, tally) if is_topic else _files(settings, instance, tally)
    writer = Writer(outlet, tally, QUEUE_RECORDS, time.monotonic)
    return Recording(writer, instance, settings.usage_interval_ms)


def new_instance(host: str, start_s: float, nonce: str) -> str:
    """Return the name of this process in records: letters, digits and dashes, because file names contain it.

    >>> new_instance("weir-1.example.com", 1763775570, "3f9a2c")
    'weir-1-20251122T013930Z-3f9a2c'
    """
    name = re.sub(r"[^A-Za-z0-9-]", "-", host.partition(".")[0])[:HOST_MAX]
    return f"{name or 'host'}-{datetime.fromtimestamp(start_s, UTC):%Y%m%dT%H%M%SZ}-{nonce}"


def _files(settings: Settings, instance: str, tally: Tally) -> Outlet:
    """Return an outlet to the configured directory. Raises ConfigError if files cannot be created there."""
    path = Path(settings.usage)
    try:
        directory.make(path)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        why = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path}: cannot write files of usage: {why}") from None
    rules = FileRules(ROTATE_S, ROTATE_BYTES, settings.usage_keep_bytes)
    return UsageFiles(path, instance, rules, tally, FileClocks(time.monotonic, time.time))


def _topic(config: Config, tally: Tally) -> Outlet:
    """Return an outlet to the configured topic. It connects at its first use. Raises ConfigError."""
    settings, name = config.settings, config.usage_topic
    topics = {Kind.USAGE: name, Kind.TRACE: name + OF_TRACES}
    made = 2 if settings.usage_trace_share > 0 else 1
    return topic_outlet(config, "usage", topics, tally, QUEUE_RECORDS, made)


def topic_outlet(
    config: Config, setting: str, topics: dict[Kind, str], tally: Tally, queue_records: int, made: int = 1
) -> Outlet:
    """Return an outlet to `topics`, named by this setting. It creates the first `made` of them, and connects
    at its first use. Raises ConfigError.
    """
    try:
        from weir.proxy.control.stores.topic_log import properties
        from weir.proxy.control.usage import topic  # an optional library of 20 MB
    except ImportError:
        raise ConfigError(
            f"{setting} needs confluent-kafka: install it beside Weir, pip install confluent-kafka"
        ) from None
    known = properties(config)
    wanted = list(topics.values())[:made]

    def prepare() -> Properties:
        """Create the topics, and return the producer's properties. Blocks; called on the writer's thread.
        Raises StoreError.
        """
        facts = trio.run(cluster_facts, config)
        topic.make_topics(wanted, known, min(REPLICAS_MAX, facts.brokers))
        return topic.sender_properties(known, queue_records, idempotent=facts.idempotent)

    return topic.UsageTopic(topics, prepare, tally, time.time)
