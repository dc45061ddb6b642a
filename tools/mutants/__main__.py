"""Change single expressions of `quotas/` and the session's code, and list the changes that no test notices.

Each is a place where a test is missing, or a line that is not needed, or means the same: judge for yourself.
The mutants are a sample: one seed draws the same one as long as the sources are the same. The tests that run
the changed line are run, in copies of the tree. To know which these are, all tests of `tests/quotas` and
`tests/proxy` run once first, under coverage; the result is kept in `.cache/mutants` until a file changes.
"""

from __future__ import annotations

import hashlib
import queue
import shutil
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console
from rich.progress import Progress

from tools.mutants.mutations import Mutation, difference, mutated, sample
from tools.mutants.selection import Measured, covering_tests
from tools.mutants.trees import GREEN, NO_TESTS, PYTEST, RED, Outcome, TestsError, Tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT: Final = Path(__file__).parents[2]
MUTATED: Final = ("quotas", "proxy/connection", "proxy/handlers")
TESTS: Final = ("tests/quotas", "tests/proxy")
READ: Final = ("protocol", "quotas", "usage", "proxy", *TESTS)
"""Directories whose files are in the fingerprint: if one of these files changes, the lines that each test
runs are measured again. Helpers elsewhere in `tests` are left out, because their changes rarely matter.
"""
SHARES: Final = 4
"""Number of shares of the tests to measure for each job, because some tests take longer than others."""
SLOWER: Final = 10
"""Factor by which the tests of a mutant may take longer than when they were measured with fewer examples."""
STARTING_S: Final = 60.0
"""Time (s) added to the time limit of a mutant's tests, for starting pytest."""


@click.command(help=__doc__)
@click.option("--sample", "count", type=click.IntRange(1), default=60, show_default=True, help="mutants")
@click.option("--seed", type=int, help="default: today's date, as 20261231")
@click.option("--jobs", type=click.IntRange(1), default=2, show_default=True, help="tests run at a time")
@click.option("--minutes", type=click.FloatRange(0), default=10.0, show_default=True, help="begin none after")
@click.argument("modules", nargs=-1)
def main(count: int, seed: int | None, jobs: int, minutes: float, modules: tuple[str, ...]) -> None:
    """Draw the sample, test it, and report. MODULES are paths; by default all that are mutated."""
    end = monotonic() + 60 * minutes
    seed = int(datetime.now(UTC).strftime("%Y%m%d")) if seed is None else seed
    sources = read_sources(ROOT)
    chosen = sample(wanted(sources, modules), count, seed)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{len(chosen)} mutants, seed {seed}", style="bold")
    try:
        with tempfile.TemporaryDirectory(prefix="weir-mutants-") as directory:
            trees = [Tree.copy(ROOT, Path(directory) / f"tree-{number}") for number in range(jobs)]
            measured = measure(trees, console)
            outcomes = list(judge(chosen, sources, measured, trees, end, console))
    except TestsError as error:
        raise click.ClickException(f"the tests cannot be used to judge mutants:\n{error}") from error
    console.print(report(outcomes, sources, len(chosen)), markup=False)


def read_sources(root: Path, rooms: Sequence[str] = MUTATED) -> dict[str, str]:
    """Return the source of every module in the rooms, by path relative to `root`."""
    files = (file for room in rooms for file in (root / room).glob("*.py"))
    return {str(file.relative_to(root)): file.read_text("utf-8") for file in files}


def wanted(sources: dict[str, str], modules: Sequence[str]) -> dict[str, str]:
    """Return the sources of the named modules, or of all if none is named. Raises click.BadParameter for an
    unknown module.
    """
    for module in modules:
        if module not in sources:
            raise click.BadParameter(f"{module} is none of the modules in {', '.join(MUTATED)}")
    return {path: source for path, source in sources.items() if not modules or path in modules}


def measure(trees: Sequence[Tree], console: Console) -> Measured:
    """Return the lines that each test runs: the kept measurement if the sources are unchanged, else a new
    one. Raises TestsError.
    """
    kept = ROOT / ".cache" / "mutants" / fingerprint(ROOT)
    done = kept / "done"
    if not done.exists():
        console.print("measuring which tests run which lines (once per state of the sources) ...")
        shutil.rmtree(kept.parent, ignore_errors=True)
        kept.mkdir(parents=True)
        files = [str(file.relative_to(ROOT)) for place in TESTS for file in (ROOT / place).glob("test_*.py")]
        files.sort(key=lambda file: -(ROOT / file).stat().st_size)
        with console.status("measuring"), ThreadPoolExecutor(len(trees)) as pool:
            count = min(SHARES * len(trees), len(files))
            tree_of = [trees[number % len(trees)] for number in range(count)]
            shares = (files[number::count] for number in range(count))
            names = (kept / f"share-{number}" for number in range(count))
            list(pool.map(_measure_share, tree_of, shares, names))
        done.touch()
    measured = Measured.read(kept)
    for test in sorted(measured.failed):
        console.print(f"fails without any mutant, and is not used: {test}", markup=False)
    if not measured.seconds:
        raise TestsError(f"no test passes without a mutant: see the output of pytest {' '.join(TESTS)}")
    return measured


def _measure_share(tree: Tree, files: Sequence[str], name: Path) -> None:
    options = [f"--data-file={name}.coverage", f"--source={','.join(MUTATED)}"]
    rc = tree.root / "mutants.coveragerc"
    rc.write_text("[run]\nrelative_files = true\n", "utf-8")
    run = ["-m", "coverage", "run", f"--rcfile={rc}", *options, *PYTEST, f"--seconds-to={name}.json"]
    status, output = tree.run([*run, *files])
    if status not in (GREEN, RED, NO_TESTS):  # all tests of a share may need a broker
        raise TestsError(output)


def fingerprint(root: Path) -> str:
    """Return a digest of all files in `READ`. The measurement of the lines that each test runs is kept while
    the digest is the same.
    """
    digest = hashlib.sha256()
    for place in map(root.joinpath, READ):
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(
                    f"{file.relative_to(root)} {file.stat().st_size}\n".encode() + file.read_bytes()
                )
    return digest.hexdigest()[:20]


def judge(
    chosen: Sequence[Mutation],
    sources: dict[str, str],
    measured: Measured,
    trees: Sequence[Tree],
    end: float,
    console: Console,
) -> Iterator[tuple[Mutation, Outcome]]:
    """Test mutants until the time `end`; yield each mutation with its outcome. Raises TestsError."""
    test_sources = read_sources(ROOT, TESTS)
    free: queue.SimpleQueue[Tree] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def one(mutation: Mutation) -> Outcome | None:
        if monotonic() > end:
            return None
        tests = covering_tests(mutation.path, mutation.line, sources, test_sources, measured)
        timeout_s = SLOWER * sum(measured.seconds.get(test, 0.0) for test in tests) + STARTING_S
        tree = free.get()
        try:
            return tree.judge(mutation.path, mutated(sources[mutation.path], mutation), tests, timeout_s)
        finally:
            free.put(tree)

    pool = ThreadPoolExecutor(len(trees))
    try:
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task("testing", total=len(chosen))
            futures: dict[Future[Outcome | None], Mutation] = {
                pool.submit(one, each): each for each in chosen
            }
            for number, future in enumerate(as_completed(futures), 1):
                outcome, mutation = future.result(), futures[future]
                progress.advance(bar)
                if outcome is not None:
                    console.print(f"{number}/{len(chosen)} {mutation} {outcome.value}", markup=False)
                    yield mutation, outcome
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupt waits for the tests that run, and for no others


def report(outcomes: Iterable[tuple[Mutation, Outcome]], sources: dict[str, str], drawn: int) -> str:
    """Return the text of the report: the surviving mutants with their changes, and the counts."""
    outcomes = list(outcomes)
    lines = []
    for mutation, outcome in sorted(outcomes, key=lambda pair: (pair[0].path, pair[0].line)):
        if outcome.lives:
            source = sources[mutation.path]
            lines += ["", f"{mutation} {outcome.value}", difference(source, mutated(source, mutation))]
    lives = sum(outcome.lives for _, outcome in outcomes)
    timed_out = sum(outcome is Outcome.TIMED_OUT for _, outcome in outcomes)
    killed = len(outcomes) - lives
    lines += ["", f"{killed} of {len(outcomes)} mutants killed ({timed_out} by timeout), {lives} survived"]
    if len(outcomes) < drawn:
        lines.append(f"{drawn - len(outcomes)} were not tested: no time left (--minutes)")
    return "\n".join(lines)


if __name__ == "__main__":
    main(prog_name="python -m tools.mutants")
