"""Files that commands read whole and parse."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from weir.cli.exits import CommandError
from weir.proxy.files import QUOTAS_BYTES_MAX, read_text

T = TypeVar("T")


def read_parsed(file: Path, parse: Callable[[str], T], error: type[Exception]) -> T:
    """Return what `parse` makes of the file's text, of at most `QUOTAS_BYTES_MAX`. Raises CommandError, with
    the file's name, if the file cannot be read or `parse` raises `error`.
    """
    try:
        return parse(read_text(file, QUOTAS_BYTES_MAX, pipes=True))
    except OSError as failure:
        raise CommandError(f"{file}: cannot read it: {failure.strerror}") from None
    except error as failure:
        raise CommandError(f"{file}: {failure}") from None
