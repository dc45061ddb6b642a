"""The table of a worker's life."""

from collections.abc import Sequence

import pytest

from weir.proxy.workers.life import SILENT_LOOKS_MAX, START_LOOKS_MAX, TABLE, Event, Life, LifeError, State


def lived(*events: Event) -> Life:
    life = Life()
    for event in events:
        life.happen(event)
    return life


def looks_until_stuck(life: Life) -> int:
    looks = 1
    while not life.look():
        looks += 1
    return looks


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([Event.START, Event.READY, Event.END], State.AWAY),
        ([Event.START, Event.END, Event.START], State.STARTING),
        ([Event.START, Event.READY, Event.DRAIN, Event.DRAINED, Event.END], State.OVER),
        ([Event.START, Event.DRAIN, Event.READY, Event.DRAINED], State.DRAINED),
        ([Event.START, Event.READY, Event.DRAIN, Event.END], State.OVER),
        ([Event.START, Event.END, Event.DRAIN], State.OVER),
    ],
)
def test_a_lost_process_is_replaced_unless_the_supervisor_stops(
    events: Sequence[Event], state: State
) -> None:
    assert lived(*events).state is state


@pytest.mark.parametrize("said", [Event.READY, Event.DRAINED])
def test_a_process_that_says_what_it_cannot_say_has_broken_the_rules(said: Event) -> None:
    with pytest.raises(LifeError):
        lived(Event.START, Event.READY, said)


def test_every_process_can_end_and_nothing_happens_after_the_end() -> None:
    running = set(State) - {State.AWAY, State.OVER}
    assert {state for state, event in TABLE if event is Event.END} == running
    assert State.OVER not in {state for state, _event in TABLE}


def test_a_process_may_be_silent_for_long_only_until_it_is_ready() -> None:
    assert looks_until_stuck(lived(Event.START)) == START_LOOKS_MAX
    assert looks_until_stuck(lived(Event.START, Event.DRAIN)) == START_LOOKS_MAX
    assert looks_until_stuck(lived(Event.START, Event.READY)) == SILENT_LOOKS_MAX
    assert looks_until_stuck(lived(Event.START, Event.READY, Event.DRAIN)) == SILENT_LOOKS_MAX
