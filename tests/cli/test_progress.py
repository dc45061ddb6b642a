"""Progress is for terminals, and for what takes long."""

from __future__ import annotations

import io
from threading import Event

from rich.console import Console

from weir.cli.progress import Progress


class Screen(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.written = Event()

    def write(self, text: str) -> int:
        written = super().write(text)
        if "working" in text:
            self.written.set()
        return written


def test_progress_shows_a_line_after_its_delay() -> None:
    screen = Screen()
    with Progress("working", Console(file=screen, force_terminal=True), silent_s=0) as progress:
        assert screen.written.wait(30)
        progress.say("42 nodes working")
    assert "working" in screen.getvalue()
