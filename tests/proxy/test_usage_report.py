"""What the log says: at once, once a minute while it lasts, and once when it is over."""

from __future__ import annotations

from dataclasses import dataclass, field

from structlog.testing import capture_logs

from weir.proxy.control.usage.tally import PERIOD_S, Kind, Loss, Tally, WritingReport


@dataclass
class Watch:
    tally: Tally = field(default_factory=Tally)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.report = WritingReport(self.tally, "/var/usage", lambda: self.now_s)

    def lines(self, now_s: float, *, last: bool = False) -> list[dict[str, object]]:
        self.now_s = now_s
        with capture_logs() as logs:
            self.report(last=last)
        assert all(line.pop("to") == "/var/usage" for line in logs)
        return [dict(line) for line in logs]


def test_the_usage_log_reports_a_failure_each_minute_and_its_end_once() -> None:
    watch = Watch()
    watch.tally.failure = "disk full"
    failing = {
        "event": "usage cannot be written, trying again",
        "log_level": "warning",
        "reason": "disk full",
    }
    assert watch.lines(5) == [failing]
    assert watch.lines(5 + PERIOD_S - 1) == []
    assert watch.lines(5 + PERIOD_S) == [{**failing, "failures": 3}]
    watch.tally.note_written(Kind.USAGE, 1, 100, 1.0)
    assert [line["event"] for line in watch.lines(70)] == ["usage is written again"]
    assert watch.lines(71) == []


def test_the_usage_log_limits_reports_of_a_recurring_failure() -> None:
    watch, said = Watch(), 0
    for second in range(120):
        watch.tally.failure = "disk full" if second % 2 else ""
        said += len(watch.lines(second))
    assert said == 2  # the failure, and a reminder after a minute


def test_the_usage_log_reports_dropped_records_by_reason_once_a_minute() -> None:
    watch = Watch()
    watch.tally.note_dropped(Loss.QUEUE_FULL, 3)
    told = {"event": "usage records dropped", "log_level": "warning"}
    assert watch.lines(0) == [{**told, "queue_full": 3}]
    watch.tally.note_dropped(Loss.QUEUE_FULL, 2)
    watch.tally.note_dropped(Loss.TRACES_MAX, 1)
    assert watch.lines(30) == []
    assert watch.lines(59) == []
    assert watch.lines(60) == [{**told, "queue_full": 2, "traces_max": 1}]
    watch.tally.note_dropped(Loss.SHUTDOWN, 9)
    assert watch.lines(61) == []
    assert watch.lines(61, last=True) == [{**told, "shutdown": 9}]
    assert watch.lines(200) == []


def test_the_usage_log_reports_deleted_and_recovered_files() -> None:
    watch = Watch()
    watch.tally.deleted_files, watch.tally.recovered_files = 2, 1
    assert [(line["event"], line["files"]) for line in watch.lines(0)] == [
        ("oldest files of usage deleted, usage_keep_bytes is reached", 2),
        ("usage files of killed writers finished", 1),
    ]
    assert watch.lines(1) == []
