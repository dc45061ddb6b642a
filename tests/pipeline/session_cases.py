"""Cases of simulated connections: a quota, its limit, and the behaviour of the clients."""

from __future__ import annotations

from tests.pipeline.sessions import Habits
from weir.quotas import QuotaKey

PRODUCE, FETCH, TIME = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE, QuotaKey.REQUEST_PERCENTAGE)
OLD_READS = QuotaKey.OLD_READ_BYTE_RATE
CASES = {
    "a producer": (PRODUCE, 5000.0, Habits(b"app", "produce")),
    "producers that pipeline": (PRODUCE, 8000.0, Habits(b"app", "produce", under_way=5, connections=3)),
    "many producers": (PRODUCE, 60_000.0, Habits(b"app", "produce", connections=20, think_ms=(0, 50))),
    "a consumer": (FETCH, 5000.0, Habits(b"app", "fetch", service_ms=(0, 100))),
    "consumers": (FETCH, 9000.0, Habits(b"app", "fetch", connections=6, service_ms=(0, 30), under_way=2)),
    "quick consumers": (
        FETCH,
        50_000.0,
        Habits(b"app", "fetch", connections=8, service_ms=(0, 1), think_ms=(0, 3)),
    ),
    "old readers": (OLD_READS, 9000.0, Habits(b"app", "fetch", connections=6, service_ms=(0, 30))),
    "requests": (TIME, 0.05, Habits(b"app", "ping", think_ms=(0, 60))),
    "requests under way": (TIME, 0.2, Habits(b"app", "ping", think_ms=(0, 90), under_way=10, connections=4)),
}
