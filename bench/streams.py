"""Kafka Streams under a broker's quotas and under Weir's, side by side: `python -m bench.streams`.

Two applications count the words of the same lines, exactly once, at the same time and at one broker. The
quotas of one are set in the broker for its client-ids, those of the other in Weir.
docs/background/fidelity.md has the figures. An argument is the time (ms) that a transaction may take.
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
from bench.targets.kroxylicious import COMPILE_S
from tests.clients import Librdkafka, create_topic
from tests.integration.weir import Weir
from tests.kafka import Cluster
from tests.kafka.java import java_command
from tests.raw import set_quotas

RELEASE: Final = "3.9.1"
SOURCE: Final = Path(__file__).with_name("java") / "StreamsWordCount.java"
QUOTAS: Final = {"producer_byte_rate": 20_000, "consumer_byte_rate": 30_000}
"""Of each client-id, bytes/s."""
KINDS: Final = ("consumer", "restore-consumer", "producer")
CLIENTS: Final = ("admin", *(f"StreamThread-{n}-{c}" for n in (1, 2) for c in KINDS))
LINES, WORDS_PER_LINE, VOCABULARY = 8_000, 8, 500
PARTITIONS: Final = 2
TRANSACTION_MS: Final = "120000"
"""With the 10 s that Streams has by default, two throttle times in a row end a transaction. The time that an
application needs then depends on how often that happens.
"""
PATIENCE_S: Final = 600.0


class Counted(NamedTuple):
    """What one application did."""

    counts: dict[str, list[int]]
    """Each word's counts, in the order of its partition in the output topic."""
    seconds: float
    """From the application's start to its last count."""
    told: str
    """Lines CLIENT-ID METRIC VALUE."""


def main() -> None:
    """Print what both applications saw. Raises SystemExit unless both counted exactly."""
    source = random.Random(1)
    words = [f"word-{number}" for number in range(VOCABULARY)]
    lines = [" ".join(source.choices(words, k=WORDS_PER_LINE)) for _ in range(LINES)]
    expected = Counter(word for line in lines for word in line.split())
    set_at_weir = "".join(f"{key} = {value}\n" for key, value in QUOTAS.items())
    with Cluster(RELEASE, optimized=True) as cluster, tempfile.TemporaryDirectory() as directory:
        set_quotas(("127.0.0.1", cluster.ports[0]), {f"broker-{client}": QUOTAS for client in CLIENTS})
        for name in ("broker", "weir"):
            write(cluster.bootstrap, name, lines)
        classpath = compiled(Path(directory))
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
    """Create an application's topics and fill its input: every second line in either partition."""
    for kind in ("input", "output"):
        create_topic(bootstrap, f"{name}-{kind}", PARTITIONS)
    for partition in range(PARTITIONS):
        some = [line.encode() for line in lines[partition::PARTITIONS]]
        Librdkafka().produce(bootstrap, f"{name}-input", some, partition=partition)


def compiled(directory: Path) -> str:
    """Compile the application; return its class path."""
    needed = ":".join(map(str, jars.classpath("streams")))
    (compiler,) = jars.classpath("ecj")
    command = [java_command(), "-jar", str(compiler), "-17", "-cp", needed, "-d", str(directory), str(SOURCE)]
    subprocess.run(command, timeout=COMPILE_S, check=True)
    return f"{directory}:{needed}"


def run(
    name: str, where: str, direct: str, classpath: str, directory: str, expected: Counter[str]
) -> Counted:
    """Run an application that is at `where` until its counts, read at `direct`, are those expected."""
    command = [java_command(), "-Xmx512m", "-cp", classpath, SOURCE.stem, where, name]
    command += [f"{name}-input", f"{name}-output", f"{directory}/{name}", *(sys.argv[1:] or [TRANSACTION_MS])]
    began = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        counts = read(direct, f"{name}-output", expected, began + PATIENCE_S)
        seconds = time.monotonic() - began
        told, _ = process.communicate("\n", 120)
    return Counted(counts, seconds, "".join(sorted(told.splitlines(keepends=True))))


def read(bootstrap: str, topic: str, expected: Counter[str], deadline: float) -> dict[str, list[int]]:
    """Read committed counts until each word's last one is that expected, or the deadline."""
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
