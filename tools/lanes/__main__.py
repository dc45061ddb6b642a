"""The commands test, all, ci and run of `python -m tools.lanes`, which run tests lane by lane."""

from __future__ import annotations

import secrets
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import click
from rich.console import Console

from tools.lanes.again import again
from tools.lanes.concerned import changed_lately, changed_paths, concerned
from tools.lanes.lane import (
    ALONE,
    ALWAYS,
    BROKERS,
    CLUSTER,
    COMPILED,
    FAST,
    IMAGE,
    LANES,
    MEASURED,
    PACKAGING,
    SPARK,
    Extent,
)
from tools.lanes.results import OUT_OF_TIME, Outcome
from tools.lanes.runner import Background, CompiledBuild, run_checks, run_compiled, run_lane
from tools.lanes.summary import show

ELSEWHERE = "Compiled modules are tested by `make check-compiled`, the rest by `make test-all`."
CHECKS_NAME = "checks"
RUNNABLE = {lane.name: lane for lane in LANES}
BEGAN = time.monotonic()
BEGAN_S = time.time()
AGAIN_MINUTES = 15
"""Time (minutes) for second runs after the time for first ones."""
COMPILED_PARTS = 6
"""Number of parts of the tests on the compiled data path; a run has one, because all have run uncompiled."""
PIPE_WIDTH = 160
"""Width (characters) of a table that is not printed to a terminal."""


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Run Weir's tests lane by lane. Exit code 1 if anything failed."""


@main.command()
def test() -> None:
    """Run the checks, the fast tests, and the core of the other lanes. Every change must pass these. Up to
    five failed tests of a lane run again without neighbours, and the summary names them.
    """
    _finish(again(_core(), _say), [ELSEWHERE])


@main.command()
def check() -> None:
    """Run the checks, and the fast tests that the change since the last commit concerns."""
    outcomes = [_checks()]
    near = concerned(changed_paths())
    lane = replace(FAST, name="concerned", only=tuple(dict.fromkeys([*near, *ALWAYS])))
    outcomes.append(run_lane(lane, Extent.CORE, [], _say))
    _finish(outcomes, [f"Not run here: the other fast tests (`make fast`). {ELSEWHERE}"])


@main.command("all")
@click.option("--seed", type=int, help="Draw Hypothesis' examples from this seed.  [default: a new one]")
def everything(seed: int | None) -> None:
    """Run all checks and tests, with new examples for every property, and a part of the fast tests that
    `test` runs also on the compiled data path. Up to five failed tests of a lane run again without
    neighbours, with the same examples.
    """
    seed = secrets.randbelow(10**9) if seed is None else seed
    _say(f"Hypothesis draws new examples: --seed {seed} repeats them")
    exploring = ["--hypothesis-profile=exploring", f"--hypothesis-seed={seed}"]
    outcomes = list(_all(exploring, _compiled_part(seed)))
    _finish(again(outcomes, _say, exploring), [])


@main.command()
@click.option(
    "--part", required=True, metavar="K/N", help="Part of the tests that `test` leaves out, e.g. 2/3."
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=1),
    default=15,
    show_default=True,
    help="Time within which a test that `test` leaves out must begin. Later ones are skipped, and counted.",
)
def ci(part: str, minutes: float) -> None:
    """Run the tests of the command `test`, a part of the fast ones also on the compiled data path, and one
    part of the remaining tests. Up to five failed tests of a lane run again without neighbours.
    """
    outcomes = _core(builds=True)
    compiled_part = _compiled_part(int(part.partition("/")[0]))
    until_s = BEGAN_S + 60 * minutes
    outcomes.append(run_compiled(Extent.CORE, [compiled_part], _say))
    outcomes += _rest(until_s, part)
    if changed_lately(PACKAGING):
        outcomes.append(run_lane(IMAGE, Extent.ALL, ["-k", "plain"], _say))
    again_until = f"--until={BEGAN_S + 60 * (minutes + AGAIN_MINUTES):.0f}"
    _finish(again(outcomes, _say, [again_until]), [f"Of what `make test` leaves out, part {part} was run."])


@main.command()
@click.argument("names", nargs=-1, required=True, type=click.Choice([CHECKS_NAME, COMPILED.name, *RUNNABLE]))
@click.option(
    "--extent", type=click.Choice(Extent, case_sensitive=False), default=Extent.ALL, show_default="all"
)
@click.option(
    "--pytest", "options", default="", metavar="OPTIONS", help='Options of pytest, e.g. "-k uplift -x".'
)
def run(names: tuple[str, ...], extent: Extent, options: str) -> None:
    """Run the named lanes: for example, `run brokers measured --extent core`."""
    _finish([_run(name, extent, shlex.split(options)) for name in names], [])


def _run(name: str, extent: Extent, options: Sequence[str]) -> Outcome:
    if name == CHECKS_NAME:
        return _checks()
    if name == COMPILED.name:
        return run_compiled(extent, options, _say)
    return run_lane(RUNNABLE[name], extent, options, _say)


def _compiled_part(number: int) -> str:
    """Return pytest's option for this part of the tests on the compiled data path, counted in circles."""
    return f"--part={number % COMPILED_PARTS + 1}/{COMPILED_PARTS}"


def _checks() -> Outcome:
    return run_checks(_say)


def _core(*, builds: bool = False) -> list[Outcome]:
    """Run the checks, and the core of all lanes. The Spark lane runs beside the checks and the lane `fast`.
    If `builds`, modules are compiled beside the tests with brokers, which wait half of their time.
    """
    with Background([SPARK], Extent.CORE, []) as beside:
        outcomes = [_checks(), run_lane(FAST, Extent.CORE, [], _say), *beside.finish(_say)]
    build = CompiledBuild() if builds else None
    outcomes.append(run_lane(BROKERS, Extent.CORE, [], _say))
    if build is not None:
        build.wait()
    return [*outcomes, run_lane(MEASURED, Extent.CORE, [], _say)]


def _all(options: Sequence[str], compiled_part: str) -> Iterator[Outcome]:
    """Run the checks and all tests. Spark and the cluster keep a core busy beside lanes with tests that wait:
    slow ones of the lane `fast`, which gets another worker for that, those with brokers, and measurements.
    Fewer measurements run at once than on a quiet machine.
    """
    with (
        Background([replace(MEASURED, workers="2"), IMAGE], Extent.ALL, options) as waiting,
        Background([SPARK, CLUSTER], Extent.ALL, options) as busy,
    ):
        yield _checks()
        yield run_lane(replace(FAST, workers=BROKERS.workers), Extent.ALL, options, _say)
        yield run_compiled(Extent.CORE, [compiled_part], _say)
        yield run_lane(BROKERS, Extent.ALL, options, _say)
        for beside in (waiting, busy):
            yield from beside.finish(_say)
    yield run_lane(ALONE, Extent.ALL, options, _say)


def _rest(until_s: float, part: str) -> Iterable[Outcome]:
    """Run this part of the remaining tests. Lanes that would begin after `until_s` (s since 1970) are not
    run: collecting their tests takes up to a minute.
    """
    for lane in LANES:
        if not lane.runs(Extent.REST) or lane is IMAGE:  # the compiled image takes ten minutes
            continue
        if time.time() < until_s:
            yield run_lane(lane, Extent.REST, [f"--until={until_s:.0f}", f"--part={part}"], _say)
        else:
            yield Outcome(f"{lane.name} ({Extent.REST.value})", (), 0.0, ok=True, note=OUT_OF_TIME)


def _finish(outcomes: Sequence[Outcome], left_out: Iterable[str]) -> None:
    show(_console(), outcomes, left_out, time.monotonic() - BEGAN)
    sys.exit(0 if all(outcome.ok for outcome in outcomes) else 1)


def _say(text: str) -> None:
    _console().rule(text, align="left", characters="-")


if __name__ == "__main__":
    main()
