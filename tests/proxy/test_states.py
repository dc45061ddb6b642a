"""The states of a connection, and their documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.connection.state import NEXT, WHY, Event, State, diagram, table

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"
BEGIN, END = "<!-- states -->", "<!-- end of states -->"


def documented() -> str:
    return f"{BEGIN}\n{table()}\n\n```mermaid\n{diagram()}\n```\n{END}"


def test_the_architecture_page_has_the_table_and_diagram_of_the_code() -> None:
    """To write them anew: python -m tests.proxy.test_states"""
    assert documented() in ARCHITECTURE.read_text("utf-8")


@pytest.mark.parametrize("state", State)
def test_every_state_closes_and_only_closed_stays_closed(state: State) -> None:
    assert len(NEXT[state]) == len(Event)
    assert NEXT[state][Event.CLOSE] == State.CLOSED
    assert (set(NEXT[state]) == {State.CLOSED}) == (state is State.CLOSED)
    assert bool(WHY[state]) == (state is not State.OPEN)


@pytest.mark.parametrize("state", [State.OPEN, State.THROTTLED])
def test_a_throttle_that_is_over_leaves_the_connection_open(state: State) -> None:
    assert NEXT[NEXT[state][Event.THROTTLE]][Event.RELEASE] == State.OPEN


@pytest.mark.parametrize("state", [State.SERIAL, State.AUTHENTICATING, State.QUERYING])
def test_a_throttle_does_not_release_a_connection_that_waits_for_a_response(state: State) -> None:
    throttled = NEXT[state][Event.THROTTLE]
    assert throttled == NEXT[throttled][Event.RELEASE] == state
    assert NEXT[throttled][Event.ANSWERED] == State.THROTTLED


def test_draining_ends_only_by_closing() -> None:
    assert {NEXT[State.DRAINING][event] for event in Event} == {State.DRAINING, State.CLOSED}


if __name__ == "__main__":
    text = ARCHITECTURE.read_text("utf-8")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    ARCHITECTURE.write_text(before + documented() + after, "utf-8")
