"""Writing what a command has made to the file that it was told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cli.exits import CommandError
from proxy.replacing import replace

if TYPE_CHECKING:
    from pathlib import Path

MODE: Final = 0o644


def write(file: Path, text: str, *, force: bool) -> None:
    """Write a new file, or with `force` replace one at once. Raises CommandError."""
    try:
        if force:
            replace(file.resolve(), text.encode("utf-8"), mode=MODE)
        else:
            with file.open("x", encoding="utf-8") as new:
                new.write(text)
    except OSError as error:
        raise CommandError(f"{file}: cannot write it: {error.strerror}") from None
