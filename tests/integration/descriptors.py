"""What a process and its children have open, as Linux tells it in /proc: whether Weir with its workers leaks,
and whether clients go past it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_ESTABLISHED, _LISTEN = "01", "0A"
_LOCAL, _REMOTE, _STATE, _INODE = 1, 2, 3, 9


def open_descriptors(pid: int) -> dict[int, str]:
    found = {}
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            found[int(link.name)] = str(link.readlink())
    return found


def family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
    return [pid, *map(int, children)]


def open_count(pid: int) -> int:
    """Return the number of descriptors of a process and its children without pipes: Weir's reactor makes its
    only pipe at the first large frame, and keeps it.
    """
    return sum(
        not target.startswith("pipe:") for each in family(pid) for target in open_descriptors(each).values()
    )


def listening_ports(pid: int) -> set[int]:
    return {_port(row[_LOCAL]) for row in _sockets([pid]) if row[_STATE] == _LISTEN}


def connected_ports(*pids: int) -> set[int]:
    """The TCP ports that processes have connected to, or accepted connections from."""
    return {_port(row[_REMOTE]) for row in _sockets(pids) if row[_STATE] == _ESTABLISHED}


def _sockets(pids: Sequence[int]) -> list[list[str]]:
    inodes = {
        match[1]
        for pid in pids
        for target in open_descriptors(pid).values()
        if (match := re.fullmatch(r"socket:\[([0-9]+)\]", target))
    }
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/{pids[0]}/net/{table}").read_text("ascii").splitlines()[1:]
    ]
    return [row for row in lines if row[_INODE] in inodes]


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
