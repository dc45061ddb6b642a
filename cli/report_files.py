"""Reports of `weir verify` and `weir probe`: written, and those of earlier runs read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from weir.cli.exits import CommandError
from weir.cli.output_file import check_free, write
from weir.conformance.report import ToolMissingError, check_tool
from weir.proxy.files import read_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REPORT_BYTES_MAX: Final = 256 * 1024 * 1024
"""Maximum size (bytes) of a report that is read."""
T = TypeVar("T")


def check_report_files(html: Path | None, *others: Path | None) -> None:
    """Raise CommandError if a report cannot be written: its directory, or Jinja2 for HTML, is missing. Call
    this before work that takes long.
    """
    for file in filter(None, (html, *others)):
        check_free(file, force=True)
    if html is not None:
        try:
            check_tool()
        except ToolMissingError as error:
            raise CommandError(str(error)) from None


def write_report(file: Path, data: bytes) -> None:
    """Write or replace a report (UTF-8). Raises CommandError."""
    write(file, data.decode("utf-8"), force=True)


def read_report(file: Path, parse: Callable[[bytes], T], source: str) -> T:
    """Return what `parse` makes of a file. `source`: command that writes such files. Raises CommandError."""
    try:
        return parse(read_text(file, REPORT_BYTES_MAX, pipes=True).encode())
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise CommandError(f"{file}: not an output of {source}: {error}") from None
