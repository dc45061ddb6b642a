"""`python -m bench`: measure, print markdown, write JSON."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn, Protocol, TypeVar

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench import report
from bench.broker import BrokerError
from bench.generator import LoadError
from bench.measure import Results, Say, measure, steps
from bench.rows import ROWS
from bench.targets import TARGETS, TargetError
from bench.targets.weir import other_tree
from tests.kafka import ClusterError, JarError, JavaMissingError

RESULTS: Final = Path(__file__).parent / "results"
INTERRUPTED: Final = 130


class _Named(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_Named)


@click.command(help=__doc__, context_settings={"max_content_width": 110})
@click.option("--rows", default="", help=f"Comma-separated: {', '.join(r.name for r in ROWS)}. Default: all.")
@click.option(
    "--targets", default="", help=f"Comma-separated: {', '.join(t.name for t in TARGETS)}. Default: all."
)
@click.option("--tree", type=click.Path(path_type=Path), multiple=True, help="Weir in another checkout too.")
@click.option("--seconds", default=2.0, show_default=True, help="Measured per row, target and round.")
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1))
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), help="Default: bench/results/TIME.json."
)
def main(
    rows: str, targets: str, tree: tuple[Path, ...], seconds: float, rounds: int, json_file: Path | None
) -> None:
    chosen_rows = _chosen(rows, ROWS, "--rows")
    others = [other_tree(path.resolve()) for path in tree]
    if len({target.name for target in others}) < len(others):
        raise click.BadParameter("two directories of the same name", param_hint="--tree")
    chosen_targets = [*_chosen(targets, TARGETS, "--targets"), *others]
    results = Results(chosen_rows, chosen_targets)
    with _progress(steps(chosen_rows, chosen_targets, rounds)) as say:
        measure(chosen_rows, chosen_targets, seconds=seconds, rounds=rounds, results=results, say=say)
    file = json_file or RESULTS / f"{datetime.now(UTC):%Y-%m-%dT%H-%M-%SZ}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    everything = report.as_json(results, {"seconds": seconds, "rounds": rounds})
    file.write_text(json.dumps(everything, indent=1) + "\n")
    click.echo(report.markdown(results))
    click.echo(f"every figure: {file}", err=True)


def _chosen(names: str, among: Sequence[N], option: str) -> list[N]:
    """Those named, in the order of the table; all if none is."""
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    unknown = wanted - {one.name for one in among}
    if unknown:
        known = ", ".join(one.name for one in among)
        raise click.BadParameter(f"{', '.join(sorted(unknown))}; known: {known}", param_hint=option)
    return [one for one in among if not wanted or one.name in wanted]


@contextmanager
def _progress(total: int) -> Iterator[Say]:
    """A line on a terminal's standard error, nothing elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("starting a broker", total=total)

        def say(what: str) -> None:
            progress.update(task, description=what, advance=1)

        yield say


def _leave(*_: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    try:
        main(prog_name="python -m bench", standalone_mode=False)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted; everything was ended and deleted", err=True)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (BrokerError, TargetError, LoadError, ClusterError, JarError, JavaMissingError, OSError) as error:
        sys.exit(f"error: {error}")
