"""Progress on a terminal, of what may take long: nothing in the first two seconds, nothing in a pipe."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.status import Status

SILENT_S: Final = 2.0


class Progress:
    """A line on stderr that says how far something is, until the `with` block ends."""

    def __init__(self, console: Console | None = None, now_s: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(stderr=True)
        self._now_s = now_s
        self._started_s = now_s()
        self._line: Status | None = None
        self._shown = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.close()

    def say(self, text: str) -> None:
        """Show `text` from now on; before two seconds have gone, only remember to be late."""
        if self._line is not None:
            self._line.update(text)
        elif self._console.is_terminal and self._now_s() - self._started_s >= SILENT_S:
            self._line = self._shown.enter_context(self._console.status(text))
