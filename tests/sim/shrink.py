"""From a script that fails to a small one that breaks the same invariant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from typing import Final

from tests.sim.script import Ask, End, Open, Script, SetTopic, Step
from tests.sim.world import Failure

RUNS_MAX: Final = 2000


def shrink(failure: Failure, execute: Callable[[Script], Failure | None]) -> Failure:
    """Leave out connections and steps, and make the others plainer, while the same invariant is broken."""
    smallest, runs = failure, 0
    is_smaller = True
    while is_smaller:
        is_smaller = False
        for script in _simpler(smallest.script):
            runs += 1
            found = execute(script)
            if found is not None and found.invariant == failure.invariant:
                smallest, is_smaller = found, True
                break
            if runs == RUNS_MAX:
                return smallest
    return smallest


def _simpler(script: Script) -> Iterator[Script]:
    steps = script.steps
    for number in {step.connection: 0 for step in steps}:
        yield replace(script, steps=tuple(step for step in steps if step.connection != number))
    for count in (16, 4, 1):
        for end in range(len(steps), 0, -count):
            yield replace(script, steps=steps[: max(end - count, 0)] + steps[end:])
    clients = {step.action.client_id for step in steps if isinstance(step.action, Open)}
    quotas = tuple(quota for quota in script.quotas if quota.client_id in clients)
    if quotas != script.quotas:
        yield replace(script, quotas=quotas)
    if script.topic_rate:
        yield replace(script, topic_rate=0)
    if script.request_percentage:
        yield replace(script, request_percentage=0)
    for index, step in enumerate(steps):
        for plainer in _plainer(step):
            yield replace(script, steps=(*steps[:index], plainer, *steps[index + 1 :]))


def _plainer(step: Step) -> Iterator[Step]:
    action = step.action
    if isinstance(action, Open | Ask | End | SetTopic):
        for field in fields(action):
            if field.default is not MISSING and getattr(action, field.name) != field.default:
                yield replace(step, action=replace(action, **{field.name: field.default}))
