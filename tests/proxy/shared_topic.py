"""A topic in memory, over which Weirs share usage, and their limiters."""

from __future__ import annotations

import threading
from collections.abc import Callable

import trio

from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.sharing.reader import ReadReport
from weir.proxy.control.sharing.sharing import UsageSharing
from weir.quotas import parse
from weir.quotas.sharing.report import ReportKey

TABLE = parse("""
[[quota]]
user = "shared"
client_id = "<default>"
producer_byte_rate = 1000
scope = "cluster"

[[quota]]
user = "local"
client_id = "<default>"
producer_byte_rate = 1000
""")
PATIENCE_S = 30.0


class Topic:
    def __init__(self) -> None:
        self.records: list[ReadReport] = []
        self.changed = threading.Condition()

    def append(self, data: bytes, at_ms: int = 0) -> None:
        with self.changed:
            self.records.append(ReadReport(data, at_ms))
            self.changed.notify_all()

    def link(self) -> TopicLink:
        return TopicLink(self)


class TopicLink:
    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self._next = 0

    def send(self, data: bytes) -> bool:
        self._topic.append(data)
        return True

    def read(self, timeout_s: float) -> list[ReadReport]:
        with self._topic.changed:
            self._topic.changed.wait_for(lambda: len(self._topic.records) > self._next, timeout_s)
            found = self._topic.records[self._next :]
            self._next += len(found)
            return found

    def close(self) -> None:
        pass


class Clock:
    """A clock (ms) that the test sets."""

    def __init__(self) -> None:
        self.now_ms = 100_000

    def __call__(self) -> int:
        return self.now_ms


def sharing_of(
    topic: Topic, clock: Clock, name: str = "me", *, key: ReportKey | None = None
) -> tuple[UsageSharing, QuotaRegistry]:
    registry = QuotaRegistry(TABLE)
    made = UsageSharing(registry, topic.link, name, 1, clock, key=key)
    return made, registry


def ignore() -> None:
    """A task that works again interests no test here."""


async def until(is_so: Callable[[], bool]) -> None:
    with trio.fail_after(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110  # another thread changes it
            await trio.sleep(0.01)


def throttle(registry: QuotaRegistry, user: str, size: int, now_ms: int) -> int:
    return registry.of(1).ledger(user, "app", now_ms).charge_produce(size, now_ms)


def clock_on(clock: Clock) -> bool:
    clock.now_ms += 10
    return True
