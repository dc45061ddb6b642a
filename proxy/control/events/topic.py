"""Write events to a topic of the cluster (`events_topic`), with the writer and the producer of usage records.

The writer's queue is bounded: events that find it full are dropped and counted, and no publisher waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog
import trio

from weir.proxy.control.usage.start import topic_outlet
from weir.proxy.control.usage.tally import Kind, Tally
from weir.proxy.control.usage.writer import Writer
from weir.proxy.outage import Outage

if TYPE_CHECKING:
    from weir.proxy.config.config import Config
    from weir.proxy.control.events.hub import Hub
    from weir.proxy.control.events.records import Event

log = structlog.get_logger("weir.events")

QUEUE_MAX: Final = 10_000
"""Maximum number of events that wait for the cluster, those included that it has not acknowledged."""
LOOK_S: Final = 1.0
CLOSE_S: Final = 2.0
"""Time (s) for which the end of the process waits until the cluster has the events."""


class EventsTopic:
    """Writes each event of a hub to a topic, and logs failures."""

    def __init__(self, writer: Writer, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self.tally: Final = writer.tally
        """Counts of the events in the topic."""
        self._writer = writer
        self._dropped = 0
        self._outage = Outage(
            log,
            "events cannot be written to their topic, trying again",
            "events are written to their topic again",
            level="warning",
            clock=monotonic_s,
        )

    async def run(self, hub: Hub) -> None:
        """Write the hub's events until cancelled, then those that wait, for at most `CLOSE_S`."""
        self._writer.start()
        hub.on_publish.append(self.put)
        log.info("writing events", to=self._writer.outlet.name)
        try:
            while True:
                await trio.sleep(LOOK_S)
                self.report()
        finally:
            hub.on_publish.remove(self.put)
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._writer.close, CLOSE_S)
            self.report()

    def put(self, event: Event) -> None:
        """Queue an event, or drop and count it. Does not wait."""
        self._writer.put(Kind.EVENT, [event])

    def report(self) -> None:
        """Log that events cannot be written, or can be written again, and the number of dropped events."""
        name, failure = self._writer.outlet.name, self.tally.failure
        dropped = sum(self.tally.dropped.values())
        if failure or dropped > self._dropped:
            self._dropped = dropped
            self._outage.failed(to=name, reason=failure or "the queue is full", dropped=dropped)
        else:
            self._outage.over(to=name)


def events_topic(config: Config) -> EventsTopic | None:
    """Return the writer of the configured topic; None if the configuration names none. Raises ConfigError."""
    name = config.settings.events_topic
    if not name:
        return None
    tally = Tally()
    outlet = topic_outlet(config, "events_topic", {Kind.EVENT: name}, tally, QUEUE_MAX)
    return EventsTopic(Writer(outlet, tally, QUEUE_MAX, time.monotonic))
