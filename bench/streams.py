"""Compare Kafka Streams under a broker's quotas and under Weir's: `python -m bench.streams [TRANSACTION_MS]`.

Two applications count the words of the same lines, exactly once, at the same time and at one broker. The
quotas of one application are set in the broker for its client-ids, those of the other in Weir.
docs/background/fidelity.md has the figures. TRANSACTION_MS is the transaction timeout (ms) of both
applications.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import Consumer

from bench import jars
from tests.clients import Librdkafka, create_topic
from tests.integration.weir import Weir
from tests.kafka import Cluster
from tests.kafka.java import java_command
from tests.raw import set_quotas

RELEASE: Final = "3.9.1"
SOURCE: Final = Path(__file__).with_name("java") / "StreamsWordCount.java"
QUOTAS: Final = {"producer_byte_rate": 20_000, "consumer_byte_rate": 30_000}
"""Quotas (bytes/s) of each client-id."""
KINDS: Final = ("consumer", "restore-consumer", "producer")
CLIENTS: Final = ("admin", *(f"StreamThread-{n}-{c}" for n in (1, 2) for c in KINDS))
LINES, WORDS_PER_LINE, VOCABULARY = 8_000, 8, 500
PARTITIONS: Final = 2
TRANSACTION_MS: Final = "120000"
"""Default transaction timeout (ms). With Streams' own default of 10 s, two throttle times in a row abort a
transaction; the time that an application needs would then depend on the number of aborted transactions.
"""
PATIENCE_S: Final = 600.0


class Counted(NamedTuple):
    """The counts and the running time of one application."""

    counts: dict[str, list[int]]
    """Counts by word: the values in the output topic, in the order of their partition."""
    seconds: float
    """Time (s) from the application's start to the last expected count."""
    told: str
    """The application's own metrics, as lines CLIENT-ID METRIC VALUE."""


def main() -> None:
    """Run both applications, and print their counts, times and metrics. Exit with 0 if both counted every
    word exactly, else with 1.
    """
    source = random.Random(1)
    words = [f"word-{number}" for number in range(VOCABULARY)]
    lines = [" ".join(source.choices(words, k=WORDS_PER_LINE)) for _ in range(LINES)]
    expected = Counter(word for line in lines for word in line.split())
    set_at_weir = "".join(f"{key} = {value}\n" for key, value in QUOTAS.items())
    with Cluster(RELEASE, optimized=True) as cluster, tempfile.TemporaryDirectory() as directory:
        set_quotas(("127.0.0.1", cluster.ports[0]), {f"broker-{client}": QUOTAS for client in CLIENTS})
        for name in ("broker", "weir"):
            write(cluster.bootstrap, name, lines)
        classpath = jars.compiled(SOURCE, Path(directory), "streams")
        with Weir(cluster.bootstrap, f'[[quota]]\nclient_id = "<default>"\n{set_at_weir}') as weir:
            at = {"broker": cluster.bootstrap, "weir": weir.bootstrap}
            with ThreadPoolExecutor() as pool:
                running = {
                    name: pool.submit(run, name, where, cluster.bootstrap, classpath, directory, expected)
                    for name, where in at.items()
                }
                seen = {name: each.result() for name, each in running.items()}
    for name, one in seen.items():
        written = sum(map(len, one.counts.values()))
        print(f"{name}: {one.seconds:.1f} s; {written} counts; exact: {exact(one, expected)}\n{one.told}")
    sys.exit(not all(exact(one, expected) for one in seen.values()))


def write(bootstrap: str, name: str, lines: list[str]) -> None:
    """Create an application's input and output topics; write the lines to the input partitions in turn."""
    for kind in ("input", "output"):
        create_topic(bootstrap, f"{name}-{kind}", PARTITIONS)
    for partition in range(PARTITIONS):
        some = [line.encode() for line in lines[partition::PARTITIONS]]
        Librdkafka().produce(bootstrap, f"{name}-input", some, partition=partition)


def run(
    name: str, where: str, direct: str, classpath: str, directory: str, expected: Counter[str]
) -> Counted:
    """Run an application that connects to `where`. Read its counts from the broker at `direct` until they are
    as expected or PATIENCE_S has passed; then stop the application.
    """
    command = [java_command(), "-Xmx512m", "-cp", classpath, SOURCE.stem, where, name]
    command += [f"{name}-input", f"{name}-output", f"{directory}/{name}", *(sys.argv[1:] or [TRANSACTION_MS])]
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        counts = read(direct, f"{name}-output", expected, began + PATIENCE_S)
        seconds = time.monotonic() - began
        told, _ = process.communicate("\n", 120)
    return Counted(counts, seconds, "".join(sorted(told.splitlines(keepends=True))))


def read(bootstrap: str, topic: str, expected: Counter[str], deadline: float) -> dict[str, list[int]]:
    """Read committed counts from `topic` until each word's latest count is as expected, at most until
    `deadline` (s, monotonic).
    """
    counts: dict[str, list[int]] = {}
    options = {"bootstrap.servers": bootstrap, "group.id": topic, "client.id": "reader"}
    consumer = Consumer(options | {"isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        while time.monotonic() < deadline and {w: c[-1] for w, c in counts.items()} != dict(expected):
            for message in consumer.consume(1000, 0.2):
                key, value = message.key(), message.value()
                if isinstance(key, bytes) and isinstance(value, bytes):
                    counts.setdefault(key.decode(), []).append(int(value))
    finally:
        consumer.close()
    return counts


def exact(seen: Counted, expected: Counter[str]) -> bool:
    """Return True if every word's counts only rise, and end with the number expected."""
    return {word: counts[-1] for word, counts in seen.counts.items()} == dict(expected) and all(
        counts == sorted(set(counts)) for counts in seen.counts.values()
    )


if __name__ == "__main__":
    main()
