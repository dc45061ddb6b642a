"""Sharing over a topic: the reader's thread, what it hands over, and limiters at several Weirs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
import trio.testing
from structlog.testing import capture_logs

from tests.proxy.shared_topic import (
    TABLE,
    Clock,
    Topic,
    TopicLink,
    clock_on,
    ignore,
    sharing_of,
    throttle,
    until,
)
from weir.proxy.config import config
from weir.proxy.control.quota_registry import QuotaRegistry
from weir.proxy.control.sharing.reader import HAND_OVER_MS, News, OpenTopic, ReadReport, ReportReader
from weir.proxy.control.sharing.sharing import INHERITED_MS, usage_sharing
from weir.proxy.control.stores.store import StoreError
from weir.quotas.sharing.blindness import Sight
from weir.quotas.sharing.others import CHARGED_MAX, OthersCharge
from weir.quotas.sharing.report import LimiterUsage, UsageReport, decode, encode, limiter_number
from weir.quotas.sharing.shared import LOOK_MS


@pytest.mark.parametrize("user", ["shared", "local"])
def test_usage_at_one_weir_throttles_clients_of_the_other(user: str) -> None:
    async def story() -> None:
        topic, clock = Topic(), Clock()
        (one, here), (other, there) = (sharing_of(topic, clock, name) for name in ("one", "other"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run, ignore)
            nursery.start_soon(other.run, ignore)
            await until(lambda: clock_on(clock) and other.weirs == 2 and one.weirs == 2)
            assert throttle(there, user, 1, clock.now_ms) == 0
            throttle(here, user, 20_000, clock.now_ms)
            await until(lambda: clock_on(clock) and other.limiters.others_units >= 9000)
            assert throttle(there, user, 1000, clock.now_ms) > 0
            nursery.cancel_scope.cancel()

    trio.run(story)


def read_all(topic: Topic, clock: Clock) -> News:
    found: list[News] = []
    reader = ReportReader(topic.link, "me", 2, clock, found.append, lambda _error: None)
    reader.send(b"", 0)
    reader.start()
    try:
        deadline = threading.Event()
        while not found and not deadline.wait(0.01):
            pass
    finally:
        reader.stop()
    return found[0]


@pytest.mark.timeout(60)
def test_reports_from_before_the_start_are_charged_with_their_ages() -> None:
    """Also those of a former incarnation of the same Weir."""
    topic, clock = Topic(), Clock()
    topic.append(encode(UsageReport("me", 1, 0, (LimiterUsage(7, 500, 500),))), 1_000_000)
    topic.append(b"not a report", 1_001_000)
    topic.append(encode(UsageReport("other", 1, 9, (LimiterUsage(7, 1e6, 40),))), 1_003_000)
    topic.append(encode(UsageReport("me", 2, 0)), 1_005_000)
    news = read_all(topic, clock)
    # One other Weir uses the limiter. Former totals are not known, so this is no debt.
    assert news.charges == {7: [OthersCharge(95_000, 500, 0, True), OthersCharge(98_000, 40, 1, True)]}
    assert (news.read_back, news.ignored) == (0, {"unreadable": 1})
    assert len(news.weirs) == 2


class Failing:
    """A link whose methods fail as no method of a link should."""

    def __init__(self) -> None:
        self.closed = 0

    def send(self, _data: bytes, /) -> bool:
        return False

    def read(self, _timeout_s: float, /) -> list[ReadReport]:
        raise KeyError("a bug")

    def close(self) -> None:
        self.closed += 1
        raise RuntimeError("Consumer closed")


@pytest.mark.timeout(60)
def test_the_reader_goes_on_after_errors_of_any_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the topic is opened, read, and closed."""
    monkeypatch.setattr("weir.proxy.control.sharing.reader.RETRY_S", 0.001)
    topic, clock, failing = Topic(), Clock(), Failing()
    topic.append(encode(UsageReport("me", 2, 0)))
    links: Iterator[OpenTopic] = iter([failing, topic.link()])
    errors = [TypeError("no such property")]

    def open_link() -> OpenTopic:
        if errors:
            raise errors.pop()
        return next(links)

    found, failures = threading.Event(), list[StoreError]()
    reading = ReportReader(open_link, "me", 2, clock, lambda _news: found.set(), failures.append)
    reading.send(b"", 0)
    reading.start()
    try:
        assert found.wait(30)
    finally:
        reading.stop()
    assert [str(each) for each in failures] == [
        "internal error, please report this: TypeError: no such property",
        "internal error, please report this: KeyError: 'a bug'",
    ]
    assert failing.closed == 1


class Stuck(TopicLink):
    """A link whose reads hang until `free` is set."""

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self.reading, self.free = threading.Event(), threading.Event()

    def read(self, timeout_s: float) -> list[ReadReport]:
        self.reading.set()
        self.free.wait()
        return super().read(timeout_s)


@pytest.mark.timeout(60)
def test_stopping_does_not_wait_for_a_read_that_hangs_and_its_records_are_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("weir.proxy.control.sharing.reader.STOP_S", 0.01)
    topic = Topic()
    stuck = Stuck(topic)
    topic.append(encode(UsageReport("me", 2, 0)))
    found: list[News] = []
    reader = ReportReader(lambda: stuck, "me", 2, Clock(), found.append, lambda _error: None)
    reader.start()
    assert stuck.reading.wait(30)
    thread = reader._thread
    reader.stop()
    stuck.free.set()
    assert thread is not None
    thread.join(30)
    assert not thread.is_alive()
    assert found == []


@pytest.mark.timeout(60)
def test_a_second_start_of_the_reader_ends_the_first_thread() -> None:
    topic = Topic()
    reader = ReportReader(topic.link, "me", 2, Clock(), lambda _news: None, lambda _error: None)
    reader.start()
    first = reader._thread
    reader.start()
    try:
        assert first is not None
        first.join(30)
        assert not first.is_alive()
    finally:
        reader.stop()


@pytest.mark.trio
async def test_a_look_that_always_fails_ends_sharing_and_its_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    topic, clock = Topic(), Clock()
    one, _registry = sharing_of(topic, clock)

    def fail() -> None:
        raise KeyError("a bug")

    async def share() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run, ignore)
            await until(lambda: clock_on(clock) and False)

    monkeypatch.setattr(one, "look", fail)
    with pytest.raises(ExceptionGroup) as failure:
        await share()
    assert failure.group_contains(KeyError)
    thread = one._reader._thread
    assert thread is not None
    assert not thread.is_alive()


class Story:
    """A Weir whose looks and news are called by the test, on its clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.sharing, self.registry = sharing_of(Topic(), self.clock)
        self.ignored = Counter[str]()

    def wait(self, for_ms: int) -> None:
        for _ in range(for_ms // LOOK_MS):
            self.clock.now_ms += LOOK_MS
            self.sharing.look()

    def hear(self, weirs: int = 1) -> None:
        """Read the newest own report back, and reports of so many Weirs."""
        newest = self.sharing.own.sequence - 1
        self.sharing._heard(News({}, newest, ["w"] * weirs, Counter(self.ignored), [newest]))

    @property
    def problems(self) -> list[object]:
        return [each.key[1] for each in self.sharing.conditions()]


def test_lost_reports_are_logged_and_a_problem_once_the_weir_is_blind_until_one_comes_back() -> None:
    """Not a topic that exists for a second, nor a machine that does not run Weir for two."""
    weir = Story()
    with capture_logs() as logs:
        weir.sharing._note_failure(StoreError("the topic has no leader yet"))
        weir.wait(4_000)
        weir.hear()
        weir.wait(2_500)
        weir.sharing._note_failure(StoreError("own reports of usage do not come back"))
        weir.hear()
        assert (logs, weir.problems) == ([], [])
        weir.wait(3_000)
        assert weir.problems == ["usage_not_shared"]
        weir.sharing._note_failure(StoreError("no broker answers"))
        weir.hear()
    assert [(line["event"], line.get("reason")) for line in logs] == [
        ("usage is not shared with other Weirs, trying again", "own reports do not come back"),
        ("usage is shared with other Weirs again", None),
    ]
    assert weir.problems == []


def test_a_topic_that_is_away_is_a_problem_and_limits_stay() -> None:
    weir = Story()
    weir.sharing._note_failure(StoreError("no broker answers"))
    weir.wait(5_000)
    assert weir.problems == ["usage_not_shared"]
    assert throttle(weir.registry, "shared", 10_000, weir.clock.now_ms) == 0


def test_a_start_that_takes_long_and_has_not_failed_is_a_problem_after_15_s() -> None:
    weir = Story()
    with capture_logs() as logs:
        weir.wait(14_000)
        assert (weir.sharing.blindness.sight, logs, weir.problems) == (Sight.NEVER, [], [])
        weir.wait(1_000)
    assert (len(logs), weir.problems) == (1, ["usage_not_shared"])


def test_the_first_own_report_of_an_opened_topic_may_take_4_s_and_a_later_one_1500_ms() -> None:
    clock, topic = Clock(), Topic()
    for own_reports, silent_ms in ((0, 4_000), (1, 1_500)):

        class Slow(TopicLink):
            def read(self, _timeout_s: float) -> list[ReadReport]:
                clock.now_ms += 50
                return super().read(0)

        reader = ReportReader(lambda: Slow(topic), "me", 2, clock, lambda _news: None, lambda _error: None)
        if own_reports:
            topic.append(encode(UsageReport("me", 2, 0)))
            reader.send(b"", 0)
        began_ms = clock.now_ms
        with pytest.raises(StoreError):
            reader._read_on(threading.Event())
        assert clock.now_ms - began_ms - 50 * own_reports == silent_ms


def test_a_topic_that_is_opened_again_twice_within_a_minute_is_a_problem() -> None:
    weir = Story()
    reader = weir.sharing._reader
    reader._open_link = Failing
    for wait_ms in (20_000, 20_000, 30_000):
        weir.hear()
        assert "usage_topic_reopened" not in weir.problems
        with pytest.raises(KeyError):
            reader._read_on(threading.Event())
        weir.clock.now_ms += wait_ms
    assert weir.problems == []
    with pytest.raises(KeyError):
        reader._read_on(threading.Event())
    assert weir.problems == ["usage_topic_reopened"]
    weir.clock.now_ms += 10_000
    assert weir.problems == []


def test_reports_that_no_weir_has_sent_are_a_problem_for_a_minute() -> None:
    weir = Story()
    weir.wait(20)
    weir.hear()
    weir.ignored["repeated"] += 9
    weir.hear()
    assert weir.problems == []
    weir.ignored["forged"] += 1
    weir.hear()
    assert weir.problems == ["usage_reports_ignored"]
    weir.clock.now_ms += 60_000
    weir.hear()
    assert weir.problems == []


def test_weirs_that_appear_all_at_once_and_too_many_weirs_are_a_problem() -> None:
    weir = Story()
    weir.hear(5)  # all Weirs have started together
    assert weir.problems == []
    for weirs, problems in ((5, []), (12, []), (13, ["usage_weirs_jumped"]), (12, [])):
        weir.clock.now_ms += 60_000
        weir.hear(weirs)
        assert weir.problems == problems
    for now_ms in range(0, 600_000, 60_000):
        weir.clock.now_ms += 60_000
        weir.hear(13)
        assert weir.problems == ([] if now_ms >= 360_000 else ["usage_weirs_jumped"])
    weir.ignored["weirs"] += 1
    weir.hear(13)
    assert weir.problems == ["usage_weirs_jumped"]


def read_in_parts(topic: Topic, clock: Clock) -> list[News]:
    """Read a topic that ends with an own report; return the news in the order of their hand-over."""
    found: list[News] = []
    reader = ReportReader(topic.link, "me", 2, clock, found.append, lambda _error: None)
    reader.send(b"", 0)
    link = topic.link()
    for _ in range(5):
        reader._read(link, threading.Event())
        clock.now_ms += HAND_OVER_MS
    return found


def test_charges_of_many_limiters_are_handed_over_in_parts() -> None:
    topic, clock = Topic(), Clock()
    for report in (
        UsageReport(
            "other", 1, 0, tuple(LimiterUsage(number, 7, 7) for number in range(2 * CHARGED_MAX + 1))
        ),
        UsageReport("me", 2, 0),
    ):
        topic.append(encode(report))
    found = read_in_parts(topic, clock)
    assert [list(news.charges) for news in found] == [
        list(range(CHARGED_MAX)),
        list(range(CHARGED_MAX, 2 * CHARGED_MAX)),
        [2 * CHARGED_MAX],
    ]
    assert [news.returned for news in found] == [[0], [], []]


def test_of_too_many_reports_from_before_the_start_the_oldest_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, clock = Topic(), Clock()
    reports = [UsageReport("other", 1, number, (LimiterUsage(number, 7, 7),)) for number in range(5)]
    for report in (*reports, UsageReport("me", 2, 0)):
        topic.append(encode(report))
    monkeypatch.setattr("weir.proxy.control.sharing.reader.BACKLOG_BYTES_MAX", 3 * len(topic.records[0].data))
    (news,) = read_in_parts(topic, clock)
    assert list(news.charges) == [3, 4]


def test_a_bug_in_charging_others_usage_does_not_end_the_process() -> None:
    async def story() -> None:
        topic, clock = Topic(), Clock()
        one, _registry = sharing_of(topic, clock)
        errors = [KeyError("a bug")]

        def fail(_charges: object) -> None:
            if errors:
                raise errors.pop()

        one.on_absorb.append(fail)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run, ignore)
            await until(lambda: clock_on(clock) and one.blindness.sight is Sight.CLEAR)
            nursery.cancel_scope.cancel()
        assert not errors

    trio.run(story)


def test_a_weir_that_hands_over_reports_all_usage_before_it_tells_the_same_usage() -> None:
    """So its later reports have only usage that it has not told."""
    topic, clock = Topic(), Clock()
    one, here = sharing_of(topic, clock)
    one._reader._link = topic.link()
    throttle(here, "shared", 1, clock.now_ms)
    one.look()
    throttle(here, "shared", 1, clock.now_ms)
    one.report_now()
    reports = [decode(record.data) for record in topic.records]
    assert [usage.total for report in reports for usage in report.usages] == [1, 2]


def number_of(registry: QuotaRegistry) -> int:
    """The number of the limiter of clients of the user `shared`, in reports."""
    (limiter,) = registry.cluster.produce
    return limiter_number((None, "cluster produce", False), limiter.tags)


def charged(registry: QuotaRegistry, now_ms: int) -> float:
    """Bytes in the window of the limiter of clients of the user `shared`."""
    used = [each for each in registry.used(now_ms) if each is not None]
    return sum(units for each in used for _age_ms, units in each.charges)


class Takeover:
    """A former Weir that has used 5000 bytes, and the one that takes over."""

    def __init__(self) -> None:
        self.clock = Clock()
        _old, self.former = sharing_of(Topic(), self.clock)
        throttle(self.former, "shared", 5_000, self.clock.now_ms)
        self.number = number_of(self.former)
        self.sharing, self.registry = sharing_of(Topic(), self.clock)
        self.told: list[dict[int, list[OthersCharge]]] = []
        self.sharing.on_absorb.append(lambda charges: self.told.append(dict(charges)))
        self.sharing.begin_takeover()
        self.read_back = -1

    def look(self) -> int:
        self.clock.now_ms += LOOK_MS
        self.sharing.look()
        return self.sharing.own.sequence

    def hear(self, units: float, *, read_back: int | None = None, age_ms: int = 0) -> None:
        """Read a report of the former Weir; then own ones up to `read_back`, or none."""
        returned = [] if read_back is None else [read_back]
        self.read_back = self.read_back if read_back is None else read_back
        charges = {self.number: [OthersCharge(self.clock.now_ms - age_ms, units)]}
        self.sharing._heard(News(charges, self.read_back, ["w"] * 2, self.sharing.ignored, returned))

    def absorb(self) -> None:
        used = [each for each in self.former.used(self.clock.now_ms) if each is not None]
        self.registry.absorb(used, self.clock.now_ms)
        self.sharing.end_takeover()


def test_usage_that_a_former_weir_has_reported_and_tells_at_the_take_over_is_charged_once() -> None:
    weir = Takeover()
    weir.look()
    weir.hear(3_000, read_back=0)  # it has read the topic, long before the former Weir tells
    weir.look()
    weir.hear(2_000)
    weir.absorb()
    sent = weir.look()
    weir.hear(100)  # from before the first own report since: the former Weir may have told of it
    weir.look()
    assert charged(weir.registry, weir.clock.now_ms) == 5_000
    assert not any(weir.told)
    weir.hear(100, read_back=sent - 1)
    weir.look()
    assert charged(weir.registry, weir.clock.now_ms) == 5_000
    weir.hear(70)  # of clients that the former Weir still serves
    weir.look()
    assert charged(weir.registry, weir.clock.now_ms) == 5_070
    assert [each for each in weir.told if each] == [
        {weir.number: [OthersCharge(weir.clock.now_ms - LOOK_MS, 70)]}
    ]


def test_after_a_take_over_usage_of_others_counts_soon_although_own_reports_are_lost() -> None:
    weir = Takeover()
    weir.look()
    weir.hear(3_000, read_back=0)
    weir.absorb()
    weir.clock.now_ms += INHERITED_MS
    weir.look()
    weir.hear(3_000, age_ms=INHERITED_MS + 2 * LOOK_MS)  # from before
    weir.hear(70)
    weir.look()
    assert charged(weir.registry, weir.clock.now_ms) == 5_070


def test_weirs_with_a_key_share_usage_and_believe_nobody_else(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("0123456789abcdef\n")
    settings = {"upstream": "a:1", "usage_share_topic": "__weir_usage", "share_key_file": str(file)}
    key = config.load(None, settings).share_key
    topic, clock = Topic(), Clock()
    one, here = sharing_of(topic, clock, "one", key=key)
    other, _there = sharing_of(topic, clock, "other", key=key)
    one._reader._link = topic.link()
    throttle(here, "shared", 20_000, clock.now_ms)
    one.look()
    number = number_of(here)
    for forged in (UsageReport("one", 1, 0), UsageReport("third", 1, 0, (LimiterUsage(number, 1e9, 1e9),))):
        topic.append(encode(forged))
    topic.append(encode(UsageReport("other", 1, 0), key))
    other._reader.send(b"", 0)
    found: list[News] = []
    for weir in (one, other):
        weir._reader._hand_over = found.append
        weir._reader._read(topic.link(), threading.Event())
    assert [(news.read_back, news.ignored, len(news.weirs)) for news in found] == [
        (0, {"unsigned": 2}, 2)
    ] * 2
    assert [charge.units for charge in found[1].charges[number]] == [20_000]


def test_the_share_topic_is_one_of_weirs_own_and_a_key_needs_it() -> None:
    settings = {"upstream": "a:1", "usage_share_topic": "__weir_usage"}
    loaded, registry = config.load(None, settings), QuotaRegistry(TABLE)
    assert loaded.own_topics == {"__weir_usage"}
    assert usage_sharing(loaded, registry, Clock()) is not None
    assert usage_sharing(config.load(None, {"upstream": "a:1"}), registry, Clock()) is None
    with pytest.raises(config.ConfigError, match="share_key_file needs a topic"):
        config.load(None, {"upstream": "a:1", "share_key_file": "key"})
