"""The table of a connection's states: complete, no dead ends, equal to a broker's muting (KIP-219)."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Final

from weir.proxy.connection.state import NEXT, WHY, Event, State, diagram, table

ARCHITECTURE: Final = Path(__file__).parents[2] / "docs" / "background" / "architecture.md"
BEGIN, END = "<!-- states -->", "<!-- end of states -->"
FINAL: Final = (State.DRAINING, State.CLOSED)


def after(state: State, event: Event) -> State:
    return State(NEXT[state][event])


def test_the_table_has_a_row_for_each_state_and_a_column_for_each_event() -> None:
    assert len(NEXT) == len(State)
    assert list(State) == list(range(len(State)))
    assert list(Event) == list(range(len(Event)))
    for state in State:
        assert len(NEXT[state]) == len(Event), state.name


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
        assert after(state, Event.CLOSE) is State.CLOSED
        assert State.CLOSED in reached_from(state)


def test_no_transition_leaves_closed() -> None:
    assert set(NEXT[State.CLOSED]) == {State.CLOSED}


def test_a_draining_connection_only_closes() -> None:
    assert reached_from(State.DRAINING) == set(FINAL)
    for state in State:
        expected = State.CLOSED if state is State.CLOSED else State.DRAINING
        assert after(state, Event.DRAIN) is expected


def test_a_state_that_waits_for_a_response_is_left_by_it() -> None:
    """Or by the end of the connection, or for another response; never by a throttle or its end."""
    for state in (State.SERIAL, State.AUTHENTICATING, State.QUERYING):
        assert after(state, Event.THROTTLE) is after(state, Event.RELEASE) is state
        assert after(state, Event.ANSWERED) is State.THROTTLED


def test_states_and_transitions_equal_a_brokers_muting_for_every_sequence_of_events() -> None:
    """KafkaChannel.ChannelMuteState: a channel is read again once its response has been sent and its throttle
    is over, whichever comes first. A connection that was answered is released at once if no throttle lasts.
    """
    events = (Event.THROTTLE, Event.RELEASE, Event.SERIAL_REQUEST, Event.ANSWERED)
    for sequence in product(events, repeat=6):
        state, pending, throttled = State.OPEN, False, False
        for event in sequence:
            throttled = (throttled or event is Event.THROTTLE) and event is not Event.RELEASE
            pending = (pending or event is Event.SERIAL_REQUEST) and event is not Event.ANSWERED
            state = after(state, event)
            if state is State.THROTTLED and not throttled:
                state = after(state, Event.RELEASE)
            expected = State.SERIAL if pending else State.THROTTLED if throttled else State.OPEN
            assert state is expected, [event.name for event in sequence]


def test_each_state_but_open_says_why_no_request_is_taken() -> None:
    assert len(WHY) == len(set(WHY)) == len(State)
    assert [state for state in State if not WHY[state]] == [State.OPEN]


def test_the_written_table_names_every_transition() -> None:
    head, _rule, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in table().splitlines())
    assert head == ["state", *(event.name for event in Event)]
    for state, (name, *cells) in zip(State, rows, strict=True):
        targets = [State[cell] if cell != "·" else state for cell in cells]
        assert (name, targets) == (state.name, list(NEXT[state]))


def test_the_diagram_shows_every_change_of_state() -> None:
    drawn = {
        (source, event.strip(), target)
        for source, target, events in re.findall(r"(\w+) --> (\w+): (.*)", diagram())
        for event in events.split(",")
    }
    assert drawn == {
        (state.name, event.name, after(state, event).name)
        for state, event in product(State, Event)
        if after(state, event) is not state
    }


def documented() -> str:
    return f"{BEGIN}\n{table()}\n\n```mermaid\n{diagram()}\n```\n{END}"


def test_the_architecture_page_has_the_table_and_the_diagram_of_the_code() -> None:
    """`python -m tests.proxy.test_connection_state` writes them anew."""
    assert documented() in ARCHITECTURE.read_text("utf-8")


if __name__ == "__main__":
    text = ARCHITECTURE.read_text("utf-8")
    ARCHITECTURE.write_text(text.split(BEGIN)[0] + documented() + text.split(END)[1], "utf-8")
