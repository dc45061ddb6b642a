"""Show the progress of a long task on a terminal: nothing in the first two seconds, and nothing if stderr is
not a terminal.
"""

from __future__ import annotations

from threading import Lock, Timer
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.text import Text

SILENT_S: Final = 2.0


class Progress:
    """A line on stderr that describes the current work, from two seconds after the start until the `with`
    block ends.
    """

    def __init__(self, text: str, console: Console | None = None, silent_s: float = SILENT_S) -> None:
        self._console = console or Console(stderr=True)
        self._status = self._console.status(Text(text))
        self._turn = Lock()
        self._ended = False
        self._timer = Timer(silent_s, self._begin)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._turn:
            self._ended = True
            self._status.stop()

    def say(self, text: str) -> None:
        """Replace the text of the progress line."""
        self._status.update(Text(text))

    def _begin(self) -> None:
        with self._turn:
            if not self._ended:
                self._status.start()


class Bar:
    """A progress bar on stderr that disappears with the end of the `with` block; nothing if stderr is no
    terminal.
    """

    def __init__(self, console: Console | None = None) -> None:
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn  # `weir run` does not need it
        from rich.progress import Progress as RichProgress

        console = console or Console(stderr=True)
        columns = (BarColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        self._bar = RichProgress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def say(self, done: int, total: int, text: str) -> None:
        """Show on the bar that `done` of `total` steps are done, with a text beside it; if `total` is 0, the
        number of steps is unknown.
        """
        self._bar.update(self._task, completed=done, total=total or None, description=text)
