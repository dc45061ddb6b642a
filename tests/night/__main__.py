"""Plant problems, and print a table of what told them: `python -m tests.night [NAME...] [--all-lines]`."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.night.planted import PROBLEMS, Problem, Result

if TYPE_CHECKING:
    from tests.night.watch import Told


def main(arguments: list[str]) -> None:
    names = [name for name in arguments if not name.startswith("--")] or list(PROBLEMS)
    print(f"{datetime.now(UTC):%Y-%m-%d}\n\n| problem | log | page | event | metric, alert | /readyz |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in names:
        problem = PROBLEMS[name]
        result = problem.run(problem.expected)
        print(_row(problem, result), flush=True)
        if "--all-lines" in arguments:
            for line in result.lines:
                print(f"    {line.after_s:.1f} s: {line.text}", file=sys.stderr)


def _row(problem: Problem, result: Result) -> str:
    found = result.found
    event = found.event and found.event._replace(text=_event(found.event.text))
    log = found.log and found.log._replace(text=_event(found.log.text))
    metric = _cell(found.metric, problem.expected.metric, code=True)
    alert = f", `{problem.alert}`" if problem.alert else ""
    cells = (
        _cell(log, problem.expected.log),
        _cell(found.page, problem.expected.page),
        _cell(event, problem.expected.event, code=True),
        f"{metric}{alert}",
        _cell(found.readyz, problem.expected.readyz),
    )
    return f"| {problem.title} | {' | '.join(cells)} |"


def _event(text: str) -> str:
    """Return the name of an event, or the fields of a log line in one sentence."""
    try:
        fields = json.loads(text)
    except ValueError:
        return text
    if "kind" in fields:
        return " ".join(filter(None, (fields["kind"], str(fields.get("name", "")))))
    shown = {
        key: value for key, value in fields.items() if key not in ("event", "level", "logger", "timestamp")
    }
    return f"{fields.get('event')}: {', '.join(f'{key}={value}' for key, value in shown.items())}"[:160]


def _cell(told: Told | None, pattern: str, *, code: bool = False) -> str:
    if told is None:
        return "**nothing**" if pattern else ""
    text = told.text.replace("|", "/")
    return f"{f'`{text}`' if code else text} ({told.after_s:.1f} s)"


if __name__ == "__main__":
    main(sys.argv[1:])
