"""The playbook itself: it must fail whenever a script says less, more or other than what happened."""

from __future__ import annotations

import pytest

from protocol.messages import HeartbeatRequest, HeartbeatResponse, ProduceRequest
from proxy.close_reasons import CloseReason
from tests.proxy.playbook import Playbook
from tests.proxy.wire import quota_table
from tests.wire.frames import request, response

PING, PONG = request(HeartbeatRequest(), 0), response(HeartbeatResponse(), 0)
HEAVY = request(ProduceRequest(acks=1, transactional_id="t" * 20_000), 3)
TOO_SHORT = b"\0\0\0\1rubbish, and more"


def test_a_playbook_that_asserts_all_output_passes() -> None:
    with Playbook() as play:
        play.at(0).client(PING)
        play.to_broker(PING)
        play.at(3).broker(PONG)
        play.to_client(PONG)


def test_a_playbook_fails_on_unasserted_output_to_the_broker() -> None:
    with pytest.raises(AssertionError, match="not asserted: to the broker went 2"), Playbook() as play:
        play.client(PING)


def test_a_playbook_fails_on_unasserted_output_to_the_client() -> None:
    play = Playbook()
    play.client(PING)
    play.to_broker(PING)
    play.broker(PONG)
    with pytest.raises(AssertionError, match="not asserted: to the client"):
        play.client(PING)


def test_a_playbook_treats_time_as_an_event() -> None:
    play = Playbook()
    play.client(PING)
    with pytest.raises(AssertionError, match="not asserted"):
        play.at(1)
    with pytest.raises(AssertionError, match="go back"):
        Playbook().at(5).at(4)


def test_a_playbook_fails_on_an_unasserted_mute() -> None:
    play = Playbook(quota_table(1))
    play.client(HEAVY)
    play.to_broker(HEAVY)
    with pytest.raises(AssertionError, match=r"not asserted: muted until \d+"):
        play.at(1)


def test_a_playbook_fails_on_a_mute_that_does_not_happen() -> None:
    play = Playbook()
    play.client(PING)
    with pytest.raises(AssertionError):
        play.muted_until(100)


def test_a_playbook_fails_on_an_unasserted_violation() -> None:
    with pytest.raises(AssertionError, match="not asserted: Violation"), Playbook() as play:
        play.client(TOO_SHORT)


def test_a_playbook_fails_on_a_violation_of_another_kind() -> None:
    play = Playbook()
    play.client(TOO_SHORT)
    with pytest.raises(AssertionError):
        play.violation(CloseReason.REQUEST_TOO_LARGE)
    with pytest.raises(AssertionError):
        play.violation(CloseReason.REQUEST_TOO_SHORT, saying="an essay")
    with pytest.raises(AssertionError, match="no violation"):
        Playbook().violation(CloseReason.REQUEST_TOO_SHORT)


def test_a_playbook_fails_on_an_unasserted_close() -> None:
    with pytest.raises(AssertionError, match="not asserted: closed for client_closed"), Playbook() as play:
        play.client_ends()


def test_a_playbook_fails_on_a_close_that_does_not_happen() -> None:
    play = Playbook()
    play.client(PING)
    with pytest.raises(AssertionError):
        play.closed(CloseReason.CLIENT_CLOSED)


def test_a_playbook_fails_on_a_close_for_another_reason() -> None:
    play = Playbook()
    play.broker_ends()
    with pytest.raises(AssertionError):
        play.closed(CloseReason.CLIENT_CLOSED)


def test_a_closed_connection_in_a_playbook_takes_no_bytes() -> None:
    with Playbook() as play:
        play.client_ends()
        play.closed(CloseReason.CLIENT_CLOSED)
        play.client(PING)
        play.broker(PONG)
        play.silent()


def test_a_playbook_ticks_at_the_deadline_that_the_connection_has_set() -> None:
    with Playbook(quota_table(1000)) as play:
        play.client(HEAVY, PING)
        play.to_broker(HEAVY)
        until_ms = len(HEAVY) - 4 - 10_000
        play.muted_until(until_ms)
        assert play.tick() == until_ms
        play.to_broker(PING)
        with pytest.raises(AssertionError, match="has no deadline"):
            play.tick()


def test_a_playbook_fails_if_a_relay_would_not_learn_of_a_deadline() -> None:
    play = Playbook(quota_table(1000))
    play.client(HEAVY)
    play.to_broker(HEAVY)
    play.session.effects.changed = False
    with pytest.raises(AssertionError, match="changed untold"):
        play.tick()


def test_a_playbook_fails_on_different_output_and_names_the_frames() -> None:
    play = Playbook()
    play.client(PING)
    with pytest.raises(AssertionError, match=r"to the broker went .* expected nothing"):
        play.to_broker()


def test_a_playbook_without_events_fails() -> None:
    with pytest.raises(AssertionError, match="without events"), Playbook():
        pass


def test_a_failing_playbook_reports_only_the_first_error() -> None:
    play = Playbook()
    play.client(PING)
    play.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
