"""Produce with kafka-python until standard input ends: BOOTSTRAP TOPIC. Prints a line of JSON ten times a
second and at the end: number of records delivered, error texts, longest time (s) to an acknowledgement.

A process of its own, because the library warns when it is imported, and warnings are errors in tests.
"""

import json
import sys
import threading
import time

from kafka import KafkaProducer


def wait_for_end(stop: threading.Event) -> None:
    """Set `stop` when standard input ends."""
    sys.stdin.read()
    stop.set()


def main() -> None:
    bootstrap, topic = sys.argv[1:]
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, client_id="py", acks="all", bootstrap_timeout_ms=60_000
    )
    failures: list[str] = []
    delivered, longest_s = 0, 0.0
    stop = threading.Event()
    threading.Thread(target=wait_for_end, args=(stop,), daemon=True).start()

    def note(sent_s: float, error: object = None) -> None:
        nonlocal delivered, longest_s
        longest_s = max(longest_s, time.monotonic() - sent_s)
        if error is None:
            delivered += 1
        else:
            failures.append(repr(error))

    def say() -> None:
        print(json.dumps([delivered, failures, longest_s]), flush=True)

    futures = []
    while not stop.is_set():
        sent_s = time.monotonic()
        future = producer.send(topic, b"x" * 100)
        future.add_callback(lambda _metadata, sent_s=sent_s: note(sent_s))
        future.add_errback(lambda error, sent_s=sent_s: note(sent_s, error))
        futures.append(future)
        if len(futures) % 10 == 0:
            say()
        stop.wait(0.01)
    producer.flush(60)
    failures.extend("not acknowledged" for future in futures if not future.is_done)
    say()
    producer.close()


if __name__ == "__main__":
    main()
