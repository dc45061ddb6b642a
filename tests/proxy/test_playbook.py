"""The playbook itself: it must fail whenever a script says less, more or other than what happened."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.proxy.playbook import Playbook
from tests.proxy.wire import quota_table
from tests.wire.frames import request, response
from weir.protocol.messages import HeartbeatRequest, HeartbeatResponse, ProduceRequest
from weir.proxy.close_reasons import CloseReason

PING, PONG = request(HeartbeatRequest(), 0), response(HeartbeatResponse(), 0)
HEAVY = request(ProduceRequest(acks=1, transactional_id="t" * 20_000), 3)
CLIENT_CLOSED = CloseReason.CLIENT_CLOSED
TOO_SHORT = b"\0\0\0\1rubbish, and more"


def test_a_playbook_that_asserts_all_output_passes() -> None:
    with Playbook() as play:
        play.at(0).client(PING)
        play.to_broker(PING)
        play.at(3).broker(PONG)
        play.to_client(PONG)


def answered_in_silence(play: Playbook) -> None:
    play.forwards(PING)
    play.broker(PONG)


UNASSERTED: Final[dict[str, tuple[Callable[[Playbook], None], str]]] = {
    "output to the broker": (lambda play: play.client(PING), "to the broker went 2"),
    "output to the client": (answered_in_silence, "to the client"),
    "a mute": (lambda play: play.forwards(HEAVY), r"muted until \d+"),
    "a violation": (lambda play: play.client(TOO_SHORT), "Violation"),
    "a close": (lambda play: play.client_ends(), "closed for client_closed"),
}


@pytest.mark.parametrize("what", UNASSERTED)
def test_a_playbook_fails_on_what_was_not_asserted_at_its_end_and_at_the_next_event(what: str) -> None:
    happen, said = UNASSERTED[what]
    with pytest.raises(AssertionError, match=f"not asserted: {said}"), Playbook(quota_table(1)) as play:
        happen(play)
    play = Playbook(quota_table(1))
    happen(play)
    with pytest.raises(AssertionError, match=f"not asserted: {said}"):
        play.at(1)


SAID_WRONGLY: Final[dict[str, tuple[Callable[[Playbook], None], Callable[[Playbook], None], str]]] = {
    "other output": (lambda play: play.client(PING), lambda play: play.to_broker(), "expected nothing"),
    "other bytes returned": (
        lambda play: play.forwards(PING),
        lambda play: play.returns(PONG, told=PING),
        "to the client went",
    ),
    "a mute": (lambda play: play.client(PING), lambda play: play.muted_until(100), ""),
    "a close": (lambda play: play.client(PING), lambda play: play.closed(CLIENT_CLOSED), ""),
    "another close": (lambda play: play.broker_ends(), lambda play: play.closed(CLIENT_CLOSED), ""),
    "another violation": (
        lambda play: play.client(TOO_SHORT),
        lambda play: play.violation(CloseReason.REQUEST_TOO_LARGE),
        "",
    ),
    "other words of a violation": (
        lambda play: play.client(TOO_SHORT),
        lambda play: play.violation(CloseReason.REQUEST_TOO_SHORT, saying="an essay"),
        "",
    ),
    "a violation": (
        lambda play: play.drain(),
        lambda play: play.violation(CloseReason.REQUEST_TOO_SHORT),
        "no violation",
    ),
}


@pytest.mark.parametrize("what", SAID_WRONGLY)
def test_a_playbook_fails_on_an_assertion_of_what_has_not_happened(what: str) -> None:
    happen, say, said = SAID_WRONGLY[what]
    play = Playbook()
    happen(play)
    with pytest.raises(AssertionError, match=said or None):
        say(play)


def test_a_playbook_treats_time_as_an_event() -> None:
    play = Playbook()
    play.client(PING)
    with pytest.raises(AssertionError, match="not asserted"):
        play.at(1)
    with pytest.raises(AssertionError, match="go back"):
        Playbook().at(5).at(4)


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


def test_a_playbook_without_events_fails() -> None:
    with pytest.raises(AssertionError, match="without events"), Playbook():
        pass


def test_a_failing_playbook_reports_only_the_first_error() -> None:
    play = Playbook()
    play.client(PING)
    play.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
