"""Compare the request time that Weir charges with the request time that real brokers measure (JMX).

Each workload is one client of real libraries behind `weir run` with the shipped costs. `weir calibrate`
measures costs.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from statistics import median
from typing import Final, NamedTuple
from urllib.request import urlopen

import click
from confluent_kafka import KafkaException
from prometheus_client.parser import text_string_to_metric_families

from bench import command, render
from bench.report import Table
from bench.request_time.truth import SETTINGS, Truth, TruthError, reading
from bench.request_time.workloads import WORKLOADS, Workload, prepare
from tests.clients import ClientError
from tests.integration.weir import Weir, WeirError
from tests.kafka import Cluster, ClusterError, JarError, JavaMissingError
from tests.kafka.jars import version_tuple
from tests.kafka.ports import free_range

VERSIONS: Final = ("1.1.1", "2.8.2", "3.9.1", "4.2.0")
FAILURES: Final = (
    *(ClientError, ClusterError, JarError, JavaMissingError, KafkaException, OSError, TruthError, WeirError),
)
QUOTA: Final = '[[quota]]\nclient_id = "<default>"\nrequest_percentage = 1e9\n'
SAMPLE: Final = "weir_request_time_seconds_total"
WARM_UP: Final = ("produce-medium", "produce-large", "fetch-big", "fetch-small", "metadata-large", "commits")
WARM_UP_S: Final = 12.0
"""Time (s) for which frequent requests are sent first, so that Java compiles their code: until then they cost
many times more.
"""
SETTLE_S: Final = 0.1
HEAD: Final = ("client", "true %", "charged %", "charged / true")
AIMS: Final = {"busy": (0.5, 2.0), "compressed": (0.4, 2.5)}
"""Least and greatest wanted ratio of charged and true time, by kind of workload."""


class Figure(NamedTuple):
    """True and charged request time of a client, in percent of one broker thread."""

    workload: Workload
    true_percent: float
    charged_percent: float

    @property
    def ratio(self) -> float:
        return self.charged_percent / self.true_percent if self.true_percent else float("inf")


class Stand(NamedTuple):
    """A broker whose request time is measured, and Weir in front of it."""

    bootstrap: str
    metrics: str
    truth: Truth

    def charged_us(self, client_id: str) -> float:
        """Return the request time (µs) that Weir has charged to a client-id so far."""
        with urlopen(self.metrics) as answer:  # noqa: S310  # our own, on loopback
            families = text_string_to_metric_families(answer.read().decode())
            samples = [sample for family in families for sample in family.samples if sample.name == SAMPLE]
        return 1e6 * sum(each.value for each in samples if each.labels["client_id"] == client_id)

    def measure(self, workload: Workload, client_id: str, warm_up_s: float, seconds: float) -> Figure:
        """Run a workload. Raises TruthError."""
        began_s, over = time.monotonic(), threading.Event()
        threads = [
            threading.Thread(target=self._repeat, args=(workload, client_id, over))
            for _ in range(workload.connections)
        ]
        for thread in threads:
            thread.start()
        try:
            time.sleep(warm_up_s)
            before = self.charged_us(client_id), self.truth.us(client_id, began_s)
            counted_s = time.monotonic()
            time.sleep(seconds)
            after = self.charged_us(client_id), self.truth.us(client_id, began_s)
            counted_s = time.monotonic() - counted_s
        finally:
            over.set()
            for thread in threads:
                thread.join()
        charged, true = ((late - early) / counted_s / 1e4 for early, late in zip(before, after, strict=True))
        return Figure(workload, true, charged)

    def _repeat(self, workload: Workload, client_id: str, over: threading.Event) -> None:
        step = workload.make({"bootstrap.servers": self.bootstrap, "client.id": client_id, "log_level": 2})
        while not over.is_set():
            step()


def compare(version: str, workloads: list[Workload], seconds: float) -> list[Figure]:
    """Run the workloads that the broker supports. Raises the exceptions of FAILURES."""
    settings = SETTINGS | {"log.retention.ms": "-1"}
    admin = f"127.0.0.1:{free_range(1)}"
    options = ("--admin", admin, "--log-level", "info")
    with ExitStack() as stack:
        cluster = stack.enter_context(
            Cluster(version, settings=settings, with_jmx=True, heap="1g", optimized=True, say=command.say)
        )
        truth = stack.enter_context(reading(cluster))
        prepare(cluster.bootstrap)
        weir = stack.enter_context(Weir(cluster.bootstrap, QUOTA, options=options))
        stand = Stand(weir.bootstrap, f"http://{admin}/metrics", truth)
        command.say(f"{version}: warming up")
        for each in WORKLOADS:
            if each.name in WARM_UP:
                stand.measure(each, f"warm-up-{each.name}", WARM_UP_S / len(WARM_UP), 0.1)
        found = []
        for each in workloads:
            if each.since <= version_tuple(version) < each.until:
                command.say(f"{version}: {each.name}")
                found.append(stand.measure(each, each.name, 1.0, seconds))
        return found


def verdicts(figures: list[Figure]) -> list[str]:
    """Return the aims of docs/background/request-time.md, with the figures found."""
    notes = []
    for kind, (least, most) in AIMS.items():
        ratios = [each.ratio for each in figures if each.workload.kind == kind]
        if ratios:
            within = sum(least <= ratio <= most for ratio in ratios)
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            error = median(abs(ratio - 1) for ratio in ratios)
            aim = f"{within} of {len(ratios)} within {least:g} to {most:g}"
            notes.append(f"{kind} clients: {spread}, {aim}, median error {error:.0%}")
    notes += [
        f"{each.workload.name}: {each.charged_percent:.2f} % of a thread, aim below 0.5 %"
        for each in figures
        if each.workload.kind == "idle"
    ]
    return notes


@click.command(help=__doc__)
@click.option("--brokers", default="", help=f"Some of {', '.join(VERSIONS)}, joined by commas; default: all.")
@click.option("--workloads", default="", help="Names of workloads, joined by commas; default: all.")
@click.option("--seconds", type=click.FloatRange(0.1), default=2.0, show_default=True)
def main(brokers: str, workloads: str, seconds: float) -> None:
    chosen = command.chosen(workloads, WORKLOADS, "--workloads", lambda each: each.name)
    for version in command.chosen(brokers, VERSIONS, "--brokers"):
        figures = compare(version, chosen, seconds)
        lines = [
            [
                each.workload.name,
                f"{each.true_percent:.2f}",
                f"{each.charged_percent:.2f}",
                f"{each.ratio:.2f}",
            ]
            for each in figures
        ]
        click.echo(render.markdown([Table(f"Kafka {version}", HEAD, lines)], verdicts(figures)))


if __name__ == "__main__":
    command.run(main, "python -m bench.request_time", FAILURES)
