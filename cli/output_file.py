"""Write the output files of commands."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weir.cli.exits import CommandError
from weir.proxy.atomic_write import replace, sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterable

MODE: Final = 0o644


def write(file: Path, text: str, *, force: bool) -> None:
    """Write `text` to a new file, or with `force` replace an existing file atomically. Raises CommandError if
    the file exists without `force`, or cannot be written.
    """
    try:
        if force:
            replace(file.resolve(), text.encode("utf-8"), mode=MODE)
        else:
            with file.open("x", encoding="utf-8") as new:
                new.write(text)
    except OSError as error:
        raise CommandError(f"{file}: cannot write it: {error.strerror}") from None


def check_free(file: Path, *, force: bool) -> None:
    """Raise CommandError if `write` would fail: the file exists and `force` is false, or the file cannot be
    written. Call this before work that takes long.
    """
    if file.exists() and not force:
        raise CommandError(f"{file} exists already: choose another, or --force to replace it")
    if not file.parent.is_dir():
        raise CommandError(f"{file}: cannot write it: {file.parent} is no directory")
    if file.exists() and not file.is_file():
        raise CommandError(f"{file}: cannot write it: it is no regular file")
    if not os.access(file.resolve().parent, os.W_OK):
        raise CommandError(f"{file}: cannot write it: {os.strerror(errno.EACCES)}")


def write_lines(file: Path, lines: Iterable[str], *, force: bool) -> None:
    """Write lines to a file that may be larger than memory; the file appears when all lines are written.
    Raises CommandError, and the exceptions of the iterator `lines`; after an exception an existing file is
    unchanged.
    """
    check_free(file, force=force)
    target = file.resolve()
    try:
        fd, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    except OSError as error:
        raise CommandError(f"{file}: cannot write it: {error.strerror}") from None
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as new:
            new.writelines(lines)
            new.flush()
            os.fchmod(new.fileno(), target.stat().st_mode & 0o7777 if target.exists() else MODE)
            os.fsync(new.fileno())
        check_free(file, force=force)
        Path(name).replace(target)
    except OSError as error:
        raise CommandError(f"{file}: cannot write it: {error.strerror}") from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            Path(name).unlink()
    sync_directory(target.parent)
