"""The usage directory: file names, removal of old files, recovery of unfinished ones.

A file being written is called `.usage-INSTANCE-NUMBER.jsonl.part`: readers of directories ignore names that
begin with a dot. A finished file is called `usage-INSTANCE-NUMBER.jsonl`. Traces have files of their own.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from proxy.control.usage.lines import finish_for_the_dead
from proxy.control.usage.tally import Kind, Tally

_FINISHED: Final = re.compile(rf"(?:{'|'.join(Kind)})-.*\.jsonl")
_UNFINISHED: Final = re.compile(rf"\.((?:{'|'.join(Kind)})-.*\.jsonl)\.part")


class _File(NamedTuple):
    changed_ns: int
    name: str
    length: int


def finished_name(kind: Kind, instance: str, number: int) -> str:
    """Return a name that no other file has had; names of one instance sort by age."""
    return f"{kind.value}-{instance}-{number:08d}.jsonl"


def unfinished_name(name: str) -> str:
    """Return the file's name while it is being written."""
    return f".{name}.part"


def make(directory: Path) -> None:
    """Create the directory if it is missing, and check that files can be created in it. Raises OSError."""
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    probe = directory / f".weir-probe-{os.getpid()}"
    probe.touch()
    probe.unlink()


def recover(directory: Path, tally: Tally) -> None:
    """Finish files whose writers were killed, where possible. Raises OSError."""
    for entry in _scan(directory):
        match = _UNFINISHED.fullmatch(entry.name)
        if match is None:
            continue
        with suppress(OSError):  # a full disk, or another user's file, must not prevent writing new files
            tally.recovered_files += finish_for_the_dead(directory / entry.name, match[1]) >= 0


def prune(directory: Path, keep_bytes: int, tally: Tally) -> None:
    """Delete the oldest finished files until all have at most `keep_bytes`. Raises OSError."""
    files = sorted(entry for entry in _scan(directory) if _FINISHED.fullmatch(entry.name))
    too_many = sum(file.length for file in files) - keep_bytes
    for file in files:
        if too_many <= 0:
            return
        (directory / file.name).unlink(missing_ok=True)  # another Weir may prune too
        too_many -= file.length
        tally.deleted_files += 1
        tally.deleted_bytes += file.length


def _scan(directory: Path) -> list[_File]:
    files = []
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            files.append(_File(status.st_mtime_ns, entry.name, status.st_size))
    return files
