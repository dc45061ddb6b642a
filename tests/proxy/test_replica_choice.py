"""The choice of the throttled replicas that may get records, from the budgets of their brokers."""

from __future__ import annotations

import pytest

from tests.proxy.throttled_replicas import TOPIC, throttles
from weir.protocol.messages import FetchRequest
from weir.proxy.handlers.replication.fetched_replicas import FetchedReplica, Pair, choose
from weir.quotas.replication.replication_quotas import Progress, ReplicationQuotas
from weir.quotas.replication.throttles import Role

PAIR = Pair(leader=1, follower=2)
LEADERS_RATE = 1_000_000
ASKED = 10_000_000


def replica(*, in_sync: bool) -> FetchedReplica:
    """Partition 0, which is throttled at its leader: its follower has 100 of 100 offsets, or of 1000."""
    asked = FetchRequest.FetchPartition(partition=0, fetch_offset=100, partition_max_bytes=ASKED)
    progress = Progress(PAIR.leader, 100, 0)
    progress.high_watermark = 100 if in_sync else 1000
    return FetchedReplica(asked, (Role.LEADER,), progress)


@pytest.mark.parametrize("earlier", [[], [replica(in_sync=True)]], ids=["others", "in sync"])
def test_earlier_fetches_that_are_not_limited_do_not_add_to_the_first_bytes_of_a_copy(
    earlier: list[FetchedReplica],
) -> None:
    """A follower asks for its rate only for listed replicas that are not in sync (KIP-73). A rate that
    counted the time before would allow a burst, and then nothing until that time has left the window.
    """
    quotas = ReplicationQuotas(throttles())
    assert quotas.throttles.rate(Role.LEADER, PAIR.leader) == LEADERS_RATE
    assert quotas.throttles.is_listed(Role.LEADER, TOPIC, 0, PAIR.leader)
    for now_ms in range(0, 5000, 500):
        choose(earlier, quotas, PAIR, cut=True, now_ms=now_ms)
    copied = replica(in_sync=False)
    choose([copied], quotas, PAIR, cut=True, now_ms=5000)
    assert (copied.is_held_back, copied.max_bytes) == (False, LEADERS_RATE)
