"""What-if: clients that wait when they are told. Expected values are by hand, with Kafka's formula."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weir.quotas.limiters.budgets import Budget
from weir.quotas.replay import Asked, Replay
from weir.quotas.replay_hours import HOUR_MS, Hour, Hours
from weir.quotas.table.entities import Tags
from weir.quotas.table.quota_table import QuotaKey

PRODUCE, FETCH, TIME, MUTATIONS = (
    QuotaKey.PRODUCER_BYTE_RATE,
    QuotaKey.CONSUMER_BYTE_RATE,
    QuotaKey.REQUEST_PERCENTAGE,
    QuotaKey.CONTROLLER_MUTATION_RATE,
)
CREATED = 1
"""Topics are refused in this version."""
SIDE_BY_SIDE = ((0, 100, 2), (0, 15_000, 1), (1000, 100, 2))
"""(at, bytes, connection)"""


def feed(replay: Replay, asked: list[Asked]) -> None:
    replay.feed(*zip(*asked, strict=True))


def of(replay: Replay, *asked: tuple[float, ...]) -> Hour:
    """What comes of (at, value, connection, service, recorded, note), zero where left out; one hour."""
    rows = [(*one, *[0] * (6 - len(one))) for one in asked]
    for at, value, connection, service, recorded, note in rows:
        replay.feed([int(at)], [int(service)], [value], [int(connection)], [int(recorded)], [int(note)])
    (hour,) = replay.finish()
    return hour


def test_kafkas_own_example_of_pipelined_produce_requests() -> None:
    """Measured on a broker: three requests of 6102 bytes at 1000 bytes/s have throttles 0, 2204, 8102."""
    hour = of(Replay(PRODUCE, 1000), (0, 6102), (0, 6102), (0, 6102))
    assert (hour.violations, hour.throttle_ms) == (2, 2204 + 8102)
    assert (hour.first_ms, hour.last_ms) == (0, 2204)
    assert hour.throttled_ms == 2204 + 8102, "one after the other"


def test_a_connections_first_produce_request_is_charged_when_it_was_recorded() -> None:
    """15,000 bytes at 1000/s: 5 s. Then 100 more, where the window is 10 s again: 5.1 s. If the request was
    held for some seconds, that is over when it is recorded.
    """
    hour = of(Replay(PRODUCE, 1000), (0, 15_000, 1), (1000, 100, 2))
    assert (hour.throttle_ms, hour.last_ms) == (5000 + 5100, 1000)


def test_later_produce_requests_do_not_wait_for_throttles_of_other_connections() -> None:
    """15,100 bytes: 5.1 s; 15,200 at second 1, where the window is 10 s again: 5.2."""
    hour = of(Replay(PRODUCE, 1000), *SIDE_BY_SIDE)
    assert (hour.throttle_ms, hour.last_ms) == (5100 + 5200, 1000)
    assert hour.throttled_ms == 6200, "from 0 to 6200"


def test_a_fetch_over_the_quota_is_told_the_rest_and_delivered_after_it() -> None:
    """15,100 bytes: 5.1 s. Then 15.2 s, of which 10.1 have passed."""
    hour = of(Replay(FETCH, 1000), *SIDE_BY_SIDE)
    assert (hour.throttle_ms, hour.first_ms, hour.last_ms) == (5100 + 4100 + 5100, 0, 5100)
    assert (hour.charges, hour.violations, hour.charged) == (4, 3, 15_200)
    assert hour.throttled_ms == 10_200, "from 0 on"


def test_a_fetch_recorded_without_records_brings_none_under_other_quotas() -> None:
    """It was told to wait for 4 s. Under the same quota it is again, under a higher one it is not."""
    rows = (0, 15_000, 1, 0, 5000), (1000, 0, 2, 0, 4000), (5000, 100, 2)
    hour = of(Replay(FETCH, 1000), *rows)
    assert (hour.charges, hour.violations, hour.throttle_ms) == (3, 3, 5000 + 4000 + 5100)
    hour = of(Replay(FETCH, 2000), *rows)
    assert (hour.charges, hour.violations, hour.charged) == (3, 0, 15_100)


def test_a_fetch_without_records_is_not_charged_where_nobody_waits_any_more() -> None:
    """10,500 bytes at 1000/s are within the quota at 999 ms, where the window is 10,999 ms, and above it at
    1000, where the window is 10 s again: there a charge of nothing is answered with a throttle time.
    """
    budget = Budget(Tags("", ""), 1000, 0)
    assert [budget.charge(value, at) for value, at in ((10_000, 0), (500, 999), (0, 1000))] == [0, 0, 500]
    hour = of(Replay(FETCH, 1000), (0, 10_000, 1), (999, 500, 1), (1000, 0, 2, 0, 700))
    assert (hour.violations, hour.charges) == (0, 3)


def test_connections_that_fetch_again_take_turns() -> None:
    """15,000 bytes: 5 s. Then the others get 1000 bytes each: 16, 17 and 18 s, less the window of 10 s."""
    replay = Replay(FETCH, 1000)
    feed(replay, [(0, 0, 15_000.0, 0, 0, 1), *((i, 0, 1000.0, i, 0, 1) for i in (1, 2, 3))])
    (hour,) = replay.finish()
    assert hour.throttle_ms == 5000 + (4999 + 4998 + 4997) + 6000 + 7000 + 8000
    assert (hour.violations, hour.charges, hour.charged) == (7, 7, 18_000)
    assert (hour.throttled_ms, hour.last_ms) == (13_000, 5000)


def test_a_fetch_that_is_told_less_than_the_rest_is_told_again() -> None:
    """15,000 bytes at 1000/s: 5 s, but nobody is told more than 2. The other connection is told 2 s twice,
    then the 900 ms that are left. At 5 s: 15.1 s, of which 10 have passed.
    """
    replay = Replay(FETCH, 1000, throttle_ms_max=2000)
    hour = of(replay, (0, 15_000, 1), (100, 100, 2))
    assert hour.throttle_ms == 2000 + (2000 + 2000 + 900) + 2000
    assert (hour.violations, hour.charges, hour.last_ms) == (5, 5, 5000)


def test_replay_work_does_not_grow_with_the_square_of_the_connections() -> None:
    """A thousand connections fetch again, most of them many times; each is woken once."""
    replay = Replay(FETCH, 1000, patience_ms=10**9)
    rows: list[Asked] = [(0, 0, 20_000.0, 0, 0, 1), *((i, 0, 1000.0, i, 0, 1) for i in range(1, 1001))]
    feed(replay, rows)
    hours = replay.finish()
    assert sum(hour.charged for hour in hours) == 1_020_000
    assert sum(hour.violations for hour in hours) > 10_000
    assert replay._number < 3000


def test_replay_gives_up_a_fetch_that_is_told_again_and_again_to_wait() -> None:
    """Three wait for 10 s. Then one of them takes what lasts for 1000 s, and the others are told to wait for
    that.
    """
    replay = Replay(FETCH, 1000)
    feed(replay, [(0, 0, 20_000.0, 0, 0, 1), *((i, 0, 1e6, i, 0, 1) for i in (1, 2, 3))])
    (hour,) = replay.finish()
    assert (hour.given_up, hour.charged) == (2, 1_020_000)
    assert (hour.violations, hour.charges) == (1 + 3 + 1 + 2, 1 + 3 + 1 + 2)


def test_replay_charges_requests_in_flight_of_a_throttled_connection() -> None:
    """Far from the limit two of a connection are under way: 130 % at 12.5 % make 0.4 s, 5 % more another 0.4,
    less what has passed.
    """
    hour = of(Replay(TIME, 12.5), (0, 130, 1, 100), (10, 5, 1, 100))
    assert (hour.charges, hour.throttle_ms) == (2, 400 + 790)


def test_replay_does_not_send_a_backlog_all_at_once() -> None:
    """300 % at 12.5 % make 1 s of waiting, from 100 on, and so does each request that follows, 1100 ms apart.
    The tenth, at 11.1 s, finds that counted no more. From there the other five are far from the limit, and
    could be under way together: they are answered at 11.2, 11.3, ..., 11.6 s.
    """
    replay = Replay(TIME, 12.5)
    feed(replay, [(0, 100, 300.0, 1, 0, 0), *((200 + i, 100, 0.001, 1, 0, 0) for i in range(15))])
    (hour,) = replay.finish()
    assert (hour.charges, hour.violations, hour.throttle_ms) == (16, 10, 10_000)
    assert replay._limiters.time(replay._limiters.counted).charged_ms == 11_600


def test_replay_retries_a_refused_mutation_after_its_throttle_time() -> None:
    """The example of docs/reference/quotas.md: 560 partitions of 500, then one: 60 tokens are missing, 12 s
    at 5/s.
    """
    replay = Replay(MUTATIONS, 5.0, num_samples=100)
    eighty = [(0, 80, 1, 0, 0, CREATED)] * 7
    hour = of(replay, *eighty, (0, 1, 1, 0, 0, CREATED))
    assert (hour.violations, hour.throttle_ms, hour.charged) == (1, 12_000, 561)
    assert hour.charges == 9, "the last one twice"


def test_replay_of_a_recorded_refusal_charges_no_tokens() -> None:
    """It was refused, so it cost nothing. Now it is refused if the bucket is overdrawn, and else free."""
    refused = (1000, 0, 2, 0, 7000, CREATED)
    hour = of(Replay(MUTATIONS, 5.0), (0, 90, 1, 0, 0, CREATED), refused)
    assert (hour.violations, hour.throttle_ms) == (1, 6000), "30 of 35 tokens are missing"
    hour = of(Replay(MUTATIONS, 10.0), (0, 90, 1, 0, 0, CREATED), refused)
    assert (hour.violations, hour.charged) == (0, 90)


def test_replay_gives_up_a_request_that_waits_too_long() -> None:
    replay = Replay(PRODUCE, 1000, patience_ms=2000)
    hour = of(replay, (0, 15_000), (1000, 100), (4000, 200))
    assert (hour.given_up, hour.charged) == (1, 15_200)


def test_a_throttle_is_counted_in_each_hour_that_it_spans() -> None:
    """2 h and 20 min from ten minutes past one on."""
    replay = Replay(PRODUCE, 1.0)
    began = HOUR_MS + HOUR_MS // 6
    feed(replay, [(began, 0, 10.0 + 2.5 * 3600 - 600, 1, 0, 0)])
    hours = replay.finish()
    assert [(hour.start_ms // HOUR_MS, hour.throttled_ms // 60_000) for hour in hours] == [
        (1, 50),
        (2, 60),
        (3, 30),
    ]
    assert [hour.violations for hour in hours] == [1, 0, 0]


def test_replay_emits_each_hour_when_it_is_over() -> None:
    hours = Hours()
    hours.count(1.0, 10)
    assert hours.take() == []
    hours.count(2.0, HOUR_MS)
    assert hours.take() == [Hour(0, 1, 1.0)]
    assert hours.take(over=True) == [Hour(HOUR_MS, 1, 2.0)]


# Whatever is asked

ASKED = st.lists(
    st.tuples(
        st.integers(0, 500),  # ms since the one before
        st.sampled_from([0, 0, 1, 30]),
        st.integers(1, 3000),
        st.integers(1, 4),
    ),
    min_size=1,
    max_size=60,
)
KEYS = st.sampled_from([PRODUCE, FETCH, TIME, MUTATIONS])


def asked_of(drawn: list[tuple[int, int, int, int]], scale: float = 1.0) -> list[Asked]:
    at, rows = 0, []
    for gap, service, value, connection in drawn:
        at += gap
        rows.append((at, service, value * scale, connection, 0, CREATED))
    return rows


@given(KEYS, ASKED, st.floats(1, 5000), st.data())
def test_replay_results_do_not_depend_on_batches(
    key: QuotaKey, drawn: list[tuple[int, int, int, int]], limit: float, data: st.DataObject
) -> None:
    rows = asked_of(drawn)
    whole, cut = Replay(key, limit), Replay(key, limit)
    feed(whole, rows)
    position, hours = 0, []
    while position < len(rows):
        size = data.draw(st.integers(1, len(rows)))
        feed(cut, rows[position : position + size])
        hours += cut.take()
        position += size
    assert hours + cut.finish() == whole.finish()


@given(KEYS, ASKED, st.floats(1, 5000))
def test_replay_charges_each_request_once_or_gives_it_up(
    key: QuotaKey, drawn: list[tuple[int, int, int, int]], limit: float
) -> None:
    rows = asked_of(drawn)
    replay = Replay(key, limit)
    feed(replay, rows)
    hours = replay.finish()
    given_up = sum(hour.given_up for hour in hours)
    assert sum(hour.charged for hour in hours) <= sum(row[2] for row in rows)
    if not given_up:
        assert sum(hour.charged for hour in hours) == sum(row[2] for row in rows)
    if key in (PRODUCE, TIME):
        assert sum(hour.charges for hour in hours) + given_up == len(rows)
    for hour in hours:
        assert 0 <= hour.throttled_ms <= HOUR_MS
    assert sum(hour.throttled_ms for hour in hours) <= sum(hour.throttle_ms for hour in hours)


@given(KEYS, ASKED, st.floats(1, 5000), st.floats(1, 3))
def test_raising_a_limit_without_violations_causes_none(
    key: QuotaKey, drawn: list[tuple[int, int, int, int]], limit: float, times: float
) -> None:
    rows = asked_of(drawn, scale=0.2)
    lower, higher = Replay(key, limit), Replay(key, limit * times)
    feed(lower, rows)
    feed(higher, rows)
    if not any(hour.violations for hour in lower.finish()):
        assert not any(hour.violations for hour in higher.finish())


@given(ASKED, st.floats(1, 5000))
def test_replay_equals_a_budget_up_to_the_first_throttle(
    drawn: list[tuple[int, int, int, int]], limit: float
) -> None:
    rows = asked_of(drawn)
    budget, replay = Budget(Tags("", ""), limit, 0), Replay(PRODUCE, limit)
    feed(replay, rows)
    told = next(((at, wait) for at, _s, value, *_ in rows if (wait := budget.charge(value, at))), None)
    firsts = [hour.first_ms for hour in replay.finish() if hour.first_ms is not None]
    assert firsts[:1] == ([told[0]] if told else [])
