"""Progress of a throttled replica: rates, shares and times that follow from its fetches."""

from __future__ import annotations

import pytest

from weir.quotas.replication.replication_quotas import MARK_MS, PAUSE_MS, ReplicaProgress


def fetch(progress: ReplicaProgress, now_ms: int, offset: int) -> None:
    progress.next_offset, progress.seen_ms = offset, now_ms


def respond(progress: ReplicaProgress, high_watermark: int, size: int) -> None:
    progress.high_watermark = high_watermark
    progress.sent_bytes += size


def copied(seconds: int, high_watermark: int = 1000) -> ReplicaProgress:
    """Return the progress of a replica that fetches every second from time 0 on, and has got 1,000 bytes with
    10 offsets at each fetch but the last.
    """
    progress = ReplicaProgress(leader=1, next_offset=0, now_ms=0)
    for second in range(seconds):
        fetch(progress, second * 1000, second * 10)
        respond(progress, high_watermark, 1000)
    fetch(progress, seconds * 1000, seconds * 10)
    return progress


def test_rate_and_bytes_left_of_a_steady_copy() -> None:
    """5,000 bytes in 5 s; 50 of 1,000 offsets took 100 bytes each, so the other 950 take 95,000 bytes."""
    progress = copied(5)
    assert progress.rate(5000) == 1000
    assert (progress.lag, progress.bytes_left, progress.share_done) == (950, 95_000, 0.05)


@pytest.mark.parametrize("seconds", [9, 10, 11, 19, 20, 21, 60])
def test_the_rate_of_a_steady_copy_does_not_depend_on_marks(seconds: int) -> None:
    assert copied(seconds).rate(seconds * 1000) == 1000


def test_the_rate_forgets_what_was_sent_before_the_mark_before_the_latest() -> None:
    """Marks at 10, 20 and 30 s. From 31 s on the replica gets 5,000 bytes a second instead of 1,000. At 40 s,
    the next mark, the rate counts from the mark at 30 s: 1,000 bytes of the first second, then 45,000.
    """
    progress = copied(31)
    for second in range(31, 40):
        respond(progress, 10_000, 5000)
        fetch(progress, (second + 1) * 1000, second * 10)
    assert progress.rate(40_000) == (1000 + 9 * 5000) / 10


def test_the_rate_of_a_replica_that_gets_nothing_falls_to_0() -> None:
    """Its rate counts from the mark at 10 s: 10,000 bytes since."""
    progress = copied(20)
    assert progress.rate(20_000) == 1000
    assert progress.rate(60_000) == 10_000 / 50
    assert progress.rate(20_000 + PAUSE_MS) == 0


def test_the_rate_of_the_first_second_is_not_exaggerated() -> None:
    progress = ReplicaProgress(leader=1, next_offset=0, now_ms=0)
    respond(progress, 1000, 700)
    assert progress.rate(1) == 700


def test_a_copy_starts_at_the_leaders_first_offset_if_the_leader_has_deleted_older_records() -> None:
    """The replica asks for offset 0 first, then for 800; of 800 to 1,000 it has 50."""
    progress = ReplicaProgress(leader=1, next_offset=0, now_ms=0)
    fetch(progress, 0, 0)
    fetch(progress, 1000, 800)
    respond(progress, 1000, 5000)
    fetch(progress, 2000, 850)
    assert (progress.share_done, progress.bytes_left) == (0.25, 150 * 100)


@pytest.mark.parametrize("later_ms", [1000, MARK_MS, 3 * MARK_MS])
def test_a_new_copy_starts_when_a_replica_falls_out_of_sync(later_ms: int) -> None:
    """In sync at offset 100. While its broker is down, the leader gets 400 records of 20 bytes; then the
    replica copies 100 of them.
    """
    progress = copied(10, high_watermark=100)
    assert progress.is_in_sync
    back_ms = 3_600_000
    fetch(progress, back_ms, 100)
    respond(progress, 500, 2000)
    fetch(progress, back_ms + later_ms, 200)
    assert (progress.share_done, progress.bytes_left) == (0.25, 300 * 20)
    assert progress.sent_bytes == 12_000, "since its first fetch"


def test_a_replica_is_stalled_since_the_fetch_after_its_latest_records() -> None:
    progress = copied(15)
    assert progress.stalled_ms(15_000) == 0
    assert progress.stalled_ms(600_000) == 585_000


def test_a_replica_that_fetches_in_vain_is_stalled_since_the_next_mark_at_the_latest() -> None:
    """Its latest records came at 14 s, between the marks at 10 and 20 s."""
    progress = copied(15)
    for second in range(16, 101):
        fetch(progress, second * 1000, 150)
    assert progress.stalled_ms(100_000) == 80_000


def test_a_replica_that_falls_out_of_sync_after_hours_is_stalled_since_its_return() -> None:
    progress = copied(10, high_watermark=100)
    fetch(progress, 3_600_000, 100)
    respond(progress, 500, 0)
    assert progress.stalled_ms(3_604_000) == 4000
