"""Show the demonstration on a terminal, as plain text, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from weir.demo.measure import ClientResult
from weir.demo.rows import (
    HEADINGS,
    RIGHT,
    DemoRow,
    Scene,
    aligned,
    as_json,
    closing,
    final_row,
    live_row,
    opening,
    progress_line,
)

LINES: Final = 4
"""Maximum number of progress lines that the plain-text output prints in each phase of the demonstration."""
START: Final = "starting Weir and the clients"
BEFORE: Final = "without quotas, MB/s"
RELOAD: Final = "the quotas are written; waiting until Weir reads them"
WARM_UP: Final = "warming up at just the quotas, MB/s"
MEASURE: Final = "under the quotas, MB/s"


class Screen(Protocol):
    """An output of the demonstration. Its methods are called in this order: `begin`, `open`, `update`
    repeatedly, `close`.
    """

    def begin(self, doing: str, /) -> None:
        """Show the preparation, which takes some seconds."""

    def open(self, scene: Scene, /) -> None:
        """Show the introduction to the measurement."""

    def update(self, phase: str, done: float, results: Sequence[ClientResult]) -> None:
        """Show the current rates. `done` (0 to 1) is the part of the current phase that has passed."""

    def close(self, scene: Scene, results: Sequence[ClientResult], /) -> None:
        """Show the results and the verdict."""

    def __enter__(self) -> Self:
        """Return the screen itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the terminal, also if Ctrl-C interrupted the demonstration."""


class _Still:
    """Base class of the screens that leave the terminal unchanged, so that there is nothing to restore."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class PlainScreen(_Still):
    """A screen that prints plain text, without terminal control codes."""

    def __init__(self) -> None:
        """Prepare the output; print nothing yet."""
        self._phase = ""
        self._lines = 0

    def begin(self, doing: str) -> None:
        """Print the preparation as a line."""
        self._say(f"{doing} ...\n")

    def open(self, scene: Scene) -> None:
        """Print the introduction to the measurement."""
        self._say(opening(scene))

    def update(self, phase: str, done: float, results: Sequence[ClientResult]) -> None:
        """Print a line with the current rates, at most `LINES` times per phase of the demonstration."""
        if phase != self._phase:
            self._say(f"\n{phase}")
            self._phase, self._lines = phase, 0
        if done * LINES >= self._lines + 1:
            self._lines += 1
            self._say(progress_line(done, results))

    def close(self, _scene: Scene, results: Sequence[ClientResult]) -> None:
        """Print the table of results, and the verdict."""
        self._say(f"\n{aligned([HEADINGS, *map(final_row, results)])}\n")
        self._say("\n".join(closing(results)))

    def _say(self, text: str) -> None:
        print(text, flush=True)


class JsonScreen(_Still):
    """A screen that prints only one JSON object, after the measurement."""

    def begin(self, _doing: str) -> None:
        """Print nothing: the JSON object follows at the end."""

    def open(self, _scene: Scene) -> None:
        """Print nothing: the JSON object follows at the end."""

    def update(self, phase: str, done: float, results: Sequence[ClientResult]) -> None:
        """Print nothing: the JSON object has only the final rates."""

    def close(self, scene: Scene, results: Sequence[ClientResult]) -> None:
        """Print the results and the verdict as one JSON object on standard output."""
        print(as_json(scene, results), flush=True)


class LiveScreen:
    """A screen that redraws a table of current rates and a progress bar on a terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, transient=True, auto_refresh=False)

    def __enter__(self) -> Self:
        """Return the screen itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop redrawing, and restore the terminal."""
        self._live.stop()

    def begin(self, doing: str) -> None:
        """Begin to redraw: first a line with the preparation."""
        self._live.update(Text(f"{doing} ...", style="dim"))
        self._live.start(refresh=True)

    def open(self, scene: Scene) -> None:
        """Print the introduction to the measurement, above what is redrawn."""
        self._live.update(Text(""))
        print_opening(self._console, scene)

    def update(self, phase: str, done: float, results: Sequence[ClientResult]) -> None:
        """Redraw the table with the current rates; `done` (0 to 1) is the progress of the current phase."""
        line = Table.grid(padding=(0, 1))
        line.add_row(ProgressBar(total=1, completed=done, width=40), Text(phase, style="dim"))
        rows = [(live_row(result), "") for result in results]
        self._live.update(Group(_table(rows, "verdict"), "", line), refresh=True)

    def close(self, _scene: Scene, results: Sequence[ClientResult]) -> None:
        """Stop redrawing; print the table of results, and the verdict."""
        self._live.stop()
        print_results(self._console, results)


def print_opening(console: Console, scene: Scene) -> None:
    """Print the introduction, and an empty line."""
    console.print(opening(scene), highlight=False)
    console.print()


def print_results(console: Console, results: Sequence[ClientResult]) -> None:
    """Print the table of results, and the verdict, with colours."""
    styles = ["red" if result.failure else "green" for result in results]
    console.print(_table(list(zip(map(final_row, results), styles, strict=True))))
    console.print()
    verdict, note = closing(results)
    console.print(verdict, style="bold red" if "red" in styles else "bold green", highlight=False)
    console.print(note, style="dim", highlight=False)


def _table(rows: Sequence[tuple[DemoRow, str]], without: str = "") -> Table:
    """Return a terminal table without the column `without`; each row comes with the text style of its
    verdict.
    """
    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    shown = [name for name in DemoRow._fields if name != without]
    for name in shown:
        table.add_column(getattr(HEADINGS, name), justify="right" if name in RIGHT else "left")
    for row, style in rows:
        cells = (Text(getattr(row, name), style=style if name == "verdict" else "") for name in shown)
        table.add_row(*cells)
    return table


def screen(*, json: bool) -> Screen:
    """Return a screen for JSON if `json`; else for a terminal or for plain text, depending on standard
    output.
    """
    console = Console()
    if json:
        return JsonScreen()
    return LiveScreen(console) if console.is_terminal and not console.is_dumb_terminal else PlainScreen()
