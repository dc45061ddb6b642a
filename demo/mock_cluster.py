"""`python -m weir.demo.mock_cluster [BROKERS]`: librdkafka's mock cluster in a process of its own.

Prints HOST:PORT,HOST:PORT,... and serves until SIGTERM. The cluster creates topics when a client asks for
them, with four partitions; it keeps the last 5 MB of each, so memory stays bounded.
"""

from __future__ import annotations

import signal
import sys
from typing import Final

from confluent_kafka import Producer

from weir.demo.subprocesses import end_with_parent

BROKERS: Final = 3


def main() -> None:
    """Run the mock cluster, print its addresses, and wait until SIGTERM."""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # threads that start later inherit this
    count = int(sys.argv[1]) if len(sys.argv) > 1 else BROKERS
    owner = Producer({"bootstrap.servers": "unused:1", "test.mock.num.brokers": count, "log_level": 0})
    brokers = owner.list_topics(timeout=10).brokers.values()
    print(",".join(f"{broker.host}:{broker.port}" for broker in brokers), flush=True)
    end_with_parent()
    signal.sigwait([signal.SIGTERM])


if __name__ == "__main__":
    main()
