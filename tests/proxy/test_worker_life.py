"""The table of a worker's life."""

from collections.abc import Sequence

import pytest

from weir.proxy.workers.life import (
    SILENT_LOOKS_MAX,
    START_LOOKS_MAX,
    TABLE,
    Life,
    LifeError,
    WorkerEvent,
    WorkerState,
)


def lived(*events: WorkerEvent) -> Life:
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
        ([WorkerEvent.START, WorkerEvent.READY, WorkerEvent.END], WorkerState.AWAY),
        ([WorkerEvent.START, WorkerEvent.END, WorkerEvent.START], WorkerState.STARTING),
        (
            [WorkerEvent.START, WorkerEvent.READY, WorkerEvent.DRAIN, WorkerEvent.DRAINED, WorkerEvent.END],
            WorkerState.OVER,
        ),
        ([WorkerEvent.START, WorkerEvent.DRAIN, WorkerEvent.READY, WorkerEvent.DRAINED], WorkerState.DRAINED),
        ([WorkerEvent.START, WorkerEvent.READY, WorkerEvent.DRAIN, WorkerEvent.END], WorkerState.OVER),
        ([WorkerEvent.START, WorkerEvent.END, WorkerEvent.DRAIN], WorkerState.OVER),
    ],
)
def test_a_lost_process_is_replaced_unless_the_supervisor_stops(
    events: Sequence[WorkerEvent], state: WorkerState
) -> None:
    assert lived(*events).state is state


@pytest.mark.parametrize("said", [WorkerEvent.READY, WorkerEvent.DRAINED])
def test_a_process_that_says_what_it_cannot_say_has_broken_the_rules(said: WorkerEvent) -> None:
    with pytest.raises(LifeError):
        lived(WorkerEvent.START, WorkerEvent.READY, said)


def test_every_process_can_end_and_nothing_happens_after_the_end() -> None:
    running = set(WorkerState) - {WorkerState.AWAY, WorkerState.OVER}
    assert {state for state, event in TABLE if event is WorkerEvent.END} == running
    assert WorkerState.OVER not in {state for state, _event in TABLE}


def test_a_process_may_be_silent_for_long_only_until_it_is_ready() -> None:
    assert looks_until_stuck(lived(WorkerEvent.START)) == START_LOOKS_MAX
    assert looks_until_stuck(lived(WorkerEvent.START, WorkerEvent.DRAIN)) == START_LOOKS_MAX
    assert looks_until_stuck(lived(WorkerEvent.START, WorkerEvent.READY)) == SILENT_LOOKS_MAX
    assert (
        looks_until_stuck(lived(WorkerEvent.START, WorkerEvent.READY, WorkerEvent.DRAIN)) == SILENT_LOOKS_MAX
    )
