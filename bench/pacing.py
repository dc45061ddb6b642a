"""Compare pacing by Kafka's sampled rate with smooth pacing: `python -m bench.pacing [PICTURE.svg]`.

One producer and one consumer (librdkafka) for each kind of pacing run at the same time, through one Weir at
one broker. Counted are the bytes delivered or received in each second.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.clients import create_topic
from tests.integration.weir import Weir
from tests.kafka import Cluster

QUOTA, SECONDS, SETTLED_S, WINDOW_S, VALUE, STOCK = 2_000_000, 60, 2, 10, bytes(1000), 160_000
BATCH_BYTES, STOCK_BATCH_BYTES = 100_000, 20_000
"""Sizes (bytes) of batches. A batch of the default size, up to 1 MB, would be half a second's quota, which no
pacing can divide.
"""
KEYS: Final = {"produce": "producer_byte_rate", "fetch": "consumer_byte_rate"}
COLOURS: Final = {"kafka": "#c0392b", "smooth": "#2471a3"}
NAMES: Final = [f"{kind}-{pacing}" for kind in KEYS for pacing in COLOURS]
WIDTH, HEIGHT, MARGIN, MB_MAX = 760, 170, 40, 6


def produce(bootstrap: str, name: str) -> list[int]:
    """Run a producer that sends as fast as it can; return the bytes delivered in each second."""
    options = {"bootstrap.servers": bootstrap, "client.id": name, "queue.buffering.max.kbytes": 8000}
    producer = Producer(options | {"batch.size": BATCH_BYTES, "linger.ms": 50, "log_level": 3})
    began, by_second = time.monotonic(), [0] * (SECONDS + 1)

    def delivered(error: object, message: Message) -> None:
        if error is None:
            by_second[min(int(time.monotonic() - began), SECONDS)] += len(message)

    while time.monotonic() - began < SECONDS:
        try:
            producer.produce(name, VALUE, on_delivery=delivered)
        except BufferError:
            producer.poll(0.01)
    producer.purge()
    return by_second[:SECONDS]


def fetch(bootstrap: str, name: str) -> list[int]:
    """Run a consumer that reads as fast as it can; return the bytes received in each second."""
    received = [0]

    def count(statistics: str) -> None:
        received[0] = sum(broker["rxbytes"] for broker in json.loads(statistics)["brokers"].values())

    options = {"bootstrap.servers": bootstrap, "client.id": name, "group.id": name, "stats_cb": count}
    consumer = Consumer(options | {"statistics.interval.ms": 50, "enable.auto.commit": False})
    consumer.assign([TopicPartition(name, 0, 0)])
    began, marks = time.monotonic(), [0]
    while len(marks) <= SECONDS:
        consumer.consume(1000, 0.01)
        if time.monotonic() - began >= len(marks):
            marks.append(received[0])
    consumer.close()
    return [after - before for before, after in pairwise(marks)]


def picture(seen: dict[str, list[int]]) -> Iterator[str]:
    """Yield the lines of an SVG picture: two charts of MB/s in each second, produce above, fetch below."""
    size, inner = f'width="{WIDTH}" height="{2 * (HEIGHT + MARGIN)}"', WIDTH - 2 * MARGIN
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    yield f'<rect {size} fill="white"/>'
    for row, kind in enumerate(KEYS):
        yield f'<g transform="translate({MARGIN},{row * (HEIGHT + MARGIN) + MARGIN // 2})">'
        yield f'<text y="-6">{kind}: MB/s in each of {SECONDS} s; quota {QUOTA / 1e6:g} MB/s</text>'
        for mb in range(0, MB_MAX + 1, 2):
            y = HEIGHT * (1 - mb / MB_MAX)
            yield f'<path d="M0 {y:.0f}H{inner}" stroke="#cccccc"/><text x="-14" y="{y:.0f}">{mb}</text>'
        for number, (pacing, colour) in enumerate(COLOURS.items()):
            ys = [HEIGHT * (1 - min(done / 1e6 / MB_MAX, 1)) for done in seen[f"{kind}-{pacing}"]]
            steps = ((x * inner / SECONDS, (x + 1) * inner / SECONDS, y) for x, y in enumerate(ys))
            path = " ".join(f"{x:.0f},{y:.0f} {end:.0f},{y:.0f}" for x, end, y in steps)
            yield f'<polyline points="{path}" fill="none" stroke="{colour}"/>'
            yield f'<text x="{inner - 140 + 70 * number}" y="-6" fill="{colour}">{pacing}</text>'
        yield "</g>"
    yield "</svg>"


def main() -> None:
    """Run the four clients at once, print their rates as shares of the quota, and draw the picture if a path
    is given.
    """
    entry = '[[quota]]\nclient_id = "{}-{}"\npacing = "{}"\n{} = {}\n'
    quotas = "".join(entry.format(kind, one, one, KEYS[kind], QUOTA) for kind in KEYS for one in COLOURS)
    with Cluster("3.9.1", optimized=True) as cluster:
        options = {"batch.size": STOCK_BATCH_BYTES, "queue.buffering.max.messages": 2 * STOCK}
        stock = Producer({"bootstrap.servers": cluster.bootstrap} | options)
        for name in NAMES:
            create_topic(cluster.bootstrap, name, 1)
            for _ in range(STOCK if name.startswith("fetch") else 0):
                stock.produce(name, VALUE)
            stock.flush()
        with Weir(cluster.bootstrap, quotas) as weir, ThreadPoolExecutor() as pool:
            doing = zip((produce, produce, fetch, fetch), NAMES, strict=True)
            runs = {name: pool.submit(run, weir.bootstrap, name) for run, name in doing}
            seen = {name: run.result() for name, run in runs.items()}
    print("| | smallest 10 s | largest 10 s | mean |\n| --- | ---: | ---: | ---: |")
    for name, by_second in seen.items():
        tens = [by_second[at : at + WINDOW_S] for at in range(SETTLED_S, SECONDS - WINDOW_S + 1)]
        rates = [sum(ten) / WINDOW_S / QUOTA for ten in tens]
        mean = sum(by_second[SETTLED_S:]) / (SECONDS - SETTLED_S) / QUOTA
        print(f"| {name} | {min(rates):.3f} | {max(rates):.3f} | {mean:.3f} |")
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text("\n".join(picture(seen)) + "\n", "utf-8")


if __name__ == "__main__":
    main()
