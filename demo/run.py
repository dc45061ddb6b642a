"""The demonstration from start to end; whatever it starts has ended when it returns, or is interrupted."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from demo.cast import CAST, Actor, quota_file
from demo.clients import ClientThread, ConsumerLoop, Pace, Places, ProducerLoop, fill
from demo.clusters import BROKERS_USED_MAX, Cluster, mock, real
from demo.errors import DemoError
from demo.measure import Meter, Reading, Result, read, used_up
from demo.proxy_process import weir
from demo.rows import Scene
from demo.screens import MEASURE, WARM_UP, Screen

REFRESH_S: Final = 0.25
WARM_UP_S: Final = 10.0
"""The shortest window that Kafka divides by (docs/quotas.md). Clients that ask for just their quota so long
fill it evenly. Flat out from cold, they would use ten seconds' worth at once, then wait ten, and so on.
"""
SETTLE_S: Final = 10.0
"""How long it may take until all have been throttled, usually one."""
CLOSE_S: Final = 5.0


class Part:
    """An actor on stage: its clients, where they send to or read from, and their meters."""

    def __init__(self, actor: Actor, bootstrap: str, cluster: Cluster) -> None:
        """Make its topic, and write what it is to read. Raises DemoError."""
        topic, leaders = cluster.topic(actor.client_id, BROKERS_USED_MAX if actor.every_broker else 1)
        places: Places = (topic, tuple(leaders.values()))
        self.actor = actor
        self.brokers = len(leaders)
        self.meters = [Meter() for _ in range(actor.clients)]
        self.paces = [Pace(actor.pace) for _ in self.meters]
        self.threads = [
            ClientThread(partial(_client, actor, bootstrap, places, meter, pace))
            for meter, pace in zip(self.meters, self.paces, strict=True)
        ]
        if actor.role == "consumer":
            fill(cluster.upstream, places)

    def warm_up(self) -> None:
        """Have its clients ask for just their quota, together."""
        if self.actor.quota is not None:
            for pace in self.paces:
                pace.rate = self.actor.quota * self.brokers // len(self.paces)

    def speed_up(self) -> None:
        """Have its clients ask for all that they can get, unless they have a pace of their own."""
        for pace in self.paces:
            pace.rate = self.actor.pace

    def read(self) -> Reading:
        """Read its meters. Raises DemoError if a client has failed."""
        for thread in self.threads:
            if thread.failure:
                raise DemoError(thread.failure)
        return read(self.meters, time.monotonic())


def _client(
    actor: Actor, bootstrap: str, places: Places, meter: Meter, pace: Pace
) -> ProducerLoop | ConsumerLoop:
    if actor.role == "consumer":
        return ConsumerLoop(bootstrap, actor.client_id, places, meter, pace)
    return ProducerLoop(bootstrap, actor.client_id, places, meter, pace)


def run(upstream: str | None, seconds: float, screen: Screen) -> bool:
    """Show the demonstration, in front of a mock cluster if `upstream` is None; return whether it passed.

    Raises DemoError.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="weir-demo-")))
        cluster = stack.enter_context(mock(folder) if upstream is None else real(upstream))
        quotas = folder / "quotas.toml"
        quotas.write_text(quota_file(CAST), "utf-8")
        bootstrap = stack.enter_context(weir(cluster.upstream, cluster.node_ids, quotas))
        parts = [Part(actor, bootstrap, cluster) for actor in CAST]
        stack.enter_context(screen)
        clients = sum(actor.clients for actor in CAST)
        scene = Scene(_described(cluster, upstream), cluster.upstream, clients, seconds)
        screen.open(scene)
        for part in parts:
            part.warm_up()
        with _playing(parts):
            results = _measure(parts, seconds, screen)
        screen.close(scene, results)
    return not any(result.failure for result in results)


def _described(cluster: Cluster, upstream: str | None) -> str:
    count = len(cluster.node_ids)
    brokers = f"{count} broker{'s' if count > 1 else ''}"
    return f"A mock cluster of {brokers}" if upstream is None else f"The cluster at {upstream} ({brokers})"


@contextmanager
def _playing(parts: Sequence[Part]) -> Iterator[None]:
    """Run every client until the block ends."""
    threads = [thread for part in parts for thread in part.threads]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.stop()
        deadline = time.monotonic() + CLOSE_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))


def _measure(parts: Sequence[Part], seconds: float, screen: Screen) -> list[Result]:
    """Fill the quotas' windows evenly, then measure. Raises DemoError."""
    cold = [part.read() for part in parts]
    for elapsed_s in _ticks(WARM_UP_S):
        screen.update(WARM_UP, elapsed_s / WARM_UP_S, _results(parts, cold))
    for part in parts:
        part.speed_up()
    for _ in _ticks(SETTLE_S):
        if all(used_up(part.actor, part.read()) for part in parts):
            break
    began = [part.read() for part in parts]
    results = _results(parts, began)
    for elapsed_s in _ticks(seconds):
        results = _results(parts, began)
        screen.update(MEASURE, elapsed_s / seconds, results)
    return results


def _ticks(seconds: float) -> Iterator[float]:
    """Give the seconds that have passed, again and again, at last when all have."""
    began_s = time.monotonic()
    elapsed_s = 0.0
    while elapsed_s < seconds:
        time.sleep(min(REFRESH_S, seconds - elapsed_s))
        elapsed_s = time.monotonic() - began_s
        yield min(elapsed_s, seconds)


def _results(parts: Sequence[Part], began: Sequence[Reading]) -> list[Result]:
    return [
        Result(part.actor, part.brokers, reading, part.read())
        for part, reading in zip(parts, began, strict=True)
    ]
