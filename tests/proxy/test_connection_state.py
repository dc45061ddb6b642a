"""The tables of states: complete, no dead ends; a connection's are equal to a broker's muting (KIP-219)."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import pairwise, product
from pathlib import Path
from typing import Final, TypeAlias

from tests.interpreted import interpreted
from weir.proxy.connection.in_flight import NEXT_OF_REQUEST, RequestState, RequestTrigger
from weir.proxy.connection.response_in_progress import NEXT_OF_RESPONSE, ResponseState, ResponseTrigger
from weir.proxy.connection.state import NEXT, State, Trigger
from weir.proxy.connection.transitions import IMPOSSIBLE
from weir.proxy.connection.waits import WHY, SideWait

ARCHITECTURE: Final = Path(__file__).parents[2] / "docs" / "background" / "architecture.md"
BEGIN, END = "<!-- states -->", "<!-- end of states -->"
FINAL: Final = (State.DRAINING, State.CLOSED)


Table: TypeAlias = Sequence[Sequence[int]]


def after(state: State, trigger: Trigger) -> State:
    return State(NEXT[state][trigger])


def reached(follows: Table, first: Iterable[int]) -> set[int]:
    found = set(first)
    waiting = list(found)
    while waiting:
        new = set(follows[waiting.pop()]) - found - {IMPOSSIBLE}
        found |= new
        waiting += new
    return found


def test_a_connection_can_close_in_every_state() -> None:
    assert {after(state, Trigger.CLOSE) for state in State} == {State.CLOSED}


def test_no_transition_leaves_closed() -> None:
    assert set(NEXT[State.CLOSED]) == {State.CLOSED}


def test_a_draining_connection_only_closes() -> None:
    assert reached(NEXT, [State.DRAINING]) == set(FINAL)
    for state in State:
        expected = State.CLOSED if state is State.CLOSED else State.DRAINING
        assert after(state, Trigger.DRAIN) is expected


def test_a_state_that_waits_for_a_response_is_left_by_it() -> None:
    """Or by the end of the connection, or for another response; never by a throttle or its end."""
    for state in (State.SERIAL, State.AUTHENTICATING, State.QUERYING):
        assert after(state, Trigger.THROTTLE) is after(state, Trigger.RELEASE) is state
        assert after(state, Trigger.ANSWERED) is State.THROTTLED


def test_states_and_transitions_equal_a_brokers_muting_for_every_sequence_of_triggers() -> None:
    """KafkaChannel.ChannelMuteState: a channel is read again once its response has been sent and its throttle
    is over, whichever comes first. A connection that was answered is released at once if no throttle lasts.
    """
    triggers = (Trigger.THROTTLE, Trigger.RELEASE, Trigger.SERIAL_REQUEST, Trigger.ANSWERED)
    for sequence in product(triggers, repeat=6):
        state, pending, throttled = State.OPEN, False, False
        for trigger in sequence:
            throttled = (throttled or trigger is Trigger.THROTTLE) and trigger is not Trigger.RELEASE
            pending = (pending or trigger is Trigger.SERIAL_REQUEST) and trigger is not Trigger.ANSWERED
            state = after(state, trigger)
            if state is State.THROTTLED and not throttled:
                state = after(state, Trigger.RELEASE)
            expected = State.SERIAL if pending else State.THROTTLED if throttled else State.OPEN
            assert state is expected, [trigger.name for trigger in sequence]


def test_each_wait_says_why_no_request_is_taken() -> None:
    assert len(WHY) == len(set(WHY)) == len(SideWait)
    assert [wait for wait in SideWait if not WHY[wait]] == [SideWait.NONE]


FIRST: Final = [state for state in RequestState if state.name not in ("QUERY", "ENDED")]
TABLES: Final[Sequence[tuple[type[IntEnum], type[IntEnum], Table, Sequence[IntEnum], IntEnum]]] = (
    (State, Trigger, NEXT, (State.OPEN,), State.CLOSED),
    (RequestState, RequestTrigger, NEXT_OF_REQUEST, FIRST, RequestState.ENDED),
    (ResponseState, ResponseTrigger, NEXT_OF_RESPONSE, (ResponseState.AWAITED,), ResponseState.AWAITED),
)
"""For each machine: states, triggers, table, first states, last state."""


def test_every_state_is_reached_from_the_first_ones_and_reaches_the_last() -> None:
    for states, triggers, follows, first, last in TABLES:
        assert [len(row) for row in follows] == [len(triggers)] * len(states)
        assert reached(follows, first) == set(states)
        assert all(last in reached(follows, [state]) for state in states)


def meanings(members: type[IntEnum]) -> str:
    """Return the members of an enumeration, and what is written below each in its source, as a table."""
    body = ast.parse(inspect.getsource(members)).body[0]
    assert isinstance(body, ast.ClassDef)
    rows = [("name", "meaning"), ("---", "---")]
    for member, text in pairwise(body.body):
        if isinstance(member, ast.Assign) and isinstance(text, ast.Expr):
            rows.append((ast.unparse(member.targets[0]), " ".join(ast.literal_eval(text.value).split())))
    assert [name for name, _text in rows[2:]] == [member.name for member in members]
    return "\n".join(f"| {name} | {text} |" for name, text in rows)


def documented() -> str:
    """Return the transitions of a connection as a table, a row per state and a column per trigger; and the
    meaning of each state.
    """
    rows = [["connection", *(trigger.name for trigger in Trigger)], ["---"] * (len(Trigger) + 1)]
    for state in State:
        followers = (after(state, trigger) for trigger in Trigger)
        rows.append([state.name, *("·" if follower is state else follower.name for follower in followers)])
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    return "\n".join([BEGIN, "### States of a connection\n", f"{table}\n", f"{meanings(State)}\n", END])


@interpreted
def test_the_architecture_page_has_the_tables_of_the_code() -> None:
    """`python -m tests.proxy.test_connection_state` writes them anew."""
    assert documented() in ARCHITECTURE.read_text("utf-8")


if __name__ == "__main__":
    text = ARCHITECTURE.read_text("utf-8")
    ARCHITECTURE.write_text(text.split(BEGIN)[0] + documented() + text.split(END)[1], "utf-8")
