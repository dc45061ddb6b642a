"""The table of a connection's states: complete, no dead ends, equal to a broker's muting (KIP-219)."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Final

from weir.proxy.connection.state import NEXT, WHY, State, Trigger, diagram, table

ARCHITECTURE: Final = Path(__file__).parents[2] / "docs" / "background" / "architecture.md"
BEGIN, END = "<!-- states -->", "<!-- end of states -->"
FINAL: Final = (State.DRAINING, State.CLOSED)


def after(state: State, trigger: Trigger) -> State:
    return State(NEXT[state][trigger])


def test_the_table_has_a_row_for_each_state_and_a_column_for_each_trigger() -> None:
    assert len(NEXT) == len(State)
    assert list(State) == list(range(len(State)))
    assert list(Trigger) == list(range(len(Trigger)))
    for state in State:
        assert len(NEXT[state]) == len(Trigger), state.name


def reached_from(first: State) -> set[State]:
    found, waiting = {first}, [first]
    while waiting:
        new = {State(found_next) for found_next in NEXT[waiting.pop()]} - found
        found |= new
        waiting += new
    return found


def test_every_state_is_reached_from_open_and_reaches_closed() -> None:
    assert reached_from(State.OPEN) == set(State)
    for state in State:
        assert after(state, Trigger.CLOSE) is State.CLOSED
        assert State.CLOSED in reached_from(state)


def test_no_transition_leaves_closed() -> None:
    assert set(NEXT[State.CLOSED]) == {State.CLOSED}


def test_a_draining_connection_only_closes() -> None:
    assert reached_from(State.DRAINING) == set(FINAL)
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


def test_each_state_but_open_says_why_no_request_is_taken() -> None:
    assert len(WHY) == len(set(WHY)) == len(State)
    assert [state for state in State if not WHY[state]] == [State.OPEN]


def test_the_written_table_names_every_transition() -> None:
    head, _rule, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table().splitlines())
    assert head == ["state", *(trigger.name for trigger in Trigger)]
    for state, (name, *cells) in zip(State, rows, strict=True):
        targets = [State[cell] if cell != "·" else state for cell in cells]
        assert (name, targets) == (state.name, list(NEXT[state]))


def test_the_diagram_shows_every_change_of_state() -> None:
    drawn = {
        (source, trigger.strip(), target)
        for source, target, triggers in re.findall(r"(\w+) --> (\w+): (.*)", diagram())
        for trigger in triggers.split(",")
    }
    assert drawn == {
        (state.name, trigger.name, after(state, trigger).name)
        for state, trigger in product(State, Trigger)
        if after(state, trigger) is not state
    }


def documented() -> str:
    return f"{BEGIN}\n{table()}\n\n```mermaid\n{diagram()}\n```\n{END}"


def test_the_architecture_page_has_the_table_and_the_diagram_of_the_code() -> None:
    """`python -m tests.proxy.test_connection_state` writes them anew."""
    assert documented() in ARCHITECTURE.read_text("utf-8")


if __name__ == "__main__":
    text = ARCHITECTURE.read_text("utf-8")
    ARCHITECTURE.write_text(text.split(BEGIN)[0] + documented() + text.split(END)[1], "utf-8")
