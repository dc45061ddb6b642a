"""Errors that recur are logged when they begin, once a minute, and when they are over."""

from __future__ import annotations

import structlog
from structlog.testing import capture_logs

from weir.proxy.control.cluster.broker_states import BrokerStates
from weir.proxy.outage import Outage


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def outage_of(clock: Clock, quiet_s: float = 0.0) -> Outage:
    logger = structlog.get_logger("test")
    return Outage(logger, "lake not read", "lake read again", quiet_s=quiet_s, clock=clock)


def test_an_outage_is_logged_at_its_beginning_once_a_minute_and_at_its_end() -> None:
    clock = Clock()
    outage = outage_of(clock)
    with capture_logs() as lines:
        outage.over()
        for _ in range(121):
            outage.failed(reason="dry")
            clock.now_s += 1
        outage.over(lake="Garda")
        outage.over()
    assert [(line["event"], line["log_level"], line.get("failures")) for line in lines] == [
        ("lake not read", "error", None),
        ("lake not read", "error", 61),
        ("lake not read", "error", 121),
        ("lake read again", "info", 121),
    ]
    assert (lines[-1]["lake"], lines[-1]["lasted_s"]) == ("Garda", 121.0)


def test_an_outage_whose_reason_changes_is_logged_again_at_most_twice_a_second() -> None:
    clock = Clock()
    outage = outage_of(clock)
    with capture_logs() as lines:
        for number in range(100):
            outage.failed(reason=f"reason {number}")
            clock.now_s += 0.0625
    assert len(lines) == 13  # 6.25 s


def test_successes_between_failures_do_not_end_an_outage_with_a_quiet_time() -> None:
    clock = Clock()
    outage = outage_of(clock, quiet_s=5)
    with capture_logs() as lines:
        for _ in range(20):
            outage.failed()
            clock.now_s += 0.1
            outage.over()
        assert len(lines) == 1
        clock.now_s += 5
        outage.over()
    assert lines[-1]["event"] == "lake read again"


def test_an_outage_that_other_lines_tell_has_a_reason_and_no_line() -> None:
    outage = outage_of(Clock())
    with capture_logs() as lines:
        outage.record("a bug")
        assert (bool(outage), outage.failing, outage.reason) == (True, True, "a bug")
        assert not outage.over()
        assert (bool(outage), outage.failing, outage.reason) == (False, False, None)
        outage.failed(reason="dry")
        outage.record("a bug")
        assert outage.over()
    assert [line["event"] for line in lines] == ["lake not read", "lake read again"]


def test_a_broker_is_down_after_a_failed_connection_and_up_after_a_successful_one() -> None:
    states = BrokerStates()
    assert states.is_up(1)
    states.failed(1, "refused")
    states.failed(None, "refused")
    assert (states.is_up(1), states.is_up(2)) == (False, True)
    states.listed([1], [1])
    assert not states.is_up(1)
    states.reached(1)
    assert states.is_up(1)


def test_a_broker_that_the_cluster_does_not_list_is_down_until_it_is_listed() -> None:
    states = BrokerStates()
    with capture_logs() as lines:
        states.listed([1], [1, 2])
    assert (states.is_up(1), states.is_up(2)) == (True, False)
    assert [(line["event"], line["node_id"]) for line in lines] == [("broker is down", 2)]
    states.listed([1, 2], [1, 2])
    assert states.is_up(2)
