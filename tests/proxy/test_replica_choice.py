"""The choice of the throttled replicas that may get records, from the budgets of their brokers."""

from __future__ import annotations

import pytest

from weir.protocol.messages import FetchRequest
from weir.proxy.handlers.replication.fetched_replicas import FetchedReplica, choose
from weir.quotas.replication.budgets import ReplicationBudget
from weir.quotas.replication.replication_quotas import ReplicaProgress

RATE = 1_000_000
ASKED = 10_000_000


def replica(budget: ReplicationBudget, *, in_sync: bool) -> FetchedReplica:
    """A throttled replica that has 100 of 100 offsets, or of 1000."""
    asked = FetchRequest.FetchPartition(partition=0, fetch_offset=100, partition_max_bytes=ASKED)
    progress = ReplicaProgress(1, 100, 0)
    progress.high_watermark = 100 if in_sync else 1000
    return FetchedReplica(asked, (budget,), progress)


@pytest.mark.parametrize("others", [0, 1], ids=["others", "in sync"])
def test_earlier_fetches_that_are_not_limited_do_not_add_to_the_first_bytes_of_a_copy(others: int) -> None:
    """A follower asks for its rate only for listed replicas that are not in sync (KIP-73). A rate that
    counted the time before would allow a burst, and then nothing until that time has left the window.
    """
    budget = ReplicationBudget(RATE)
    earlier = [replica(budget, in_sync=True)] * others
    for now_ms in range(0, 5000, 500):
        choose(earlier, enforced=True, cut=True, now_ms=now_ms)
    copied = replica(budget, in_sync=False)
    choose([copied], enforced=True, cut=True, now_ms=5000)
    assert (copied.is_held_back, copied.max_bytes) == (False, RATE)
