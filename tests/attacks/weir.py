"""`weir`, with the CPU of each turn of its worker's reactor written to a file that the harness reads.

    WEIR_TURNS=FILE python -m tests.attacks.weir run …

`weir_turn_seconds` is by the clock; on a busy machine other processes make turns longer. The CPU of a turn
does not depend on them, but for caches and page faults. A turn that takes longer than a few milliseconds is
interrupted once, so that the file also says where the longest turn was then, and its parts: CPU in Python and
in the kernel, page faults, CPU of Python's garbage collector.
"""

from __future__ import annotations

import gc
import mmap
import os
import resource
import signal
import struct
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from weir.cli.main import main
from weir.proxy.net.reactor import Reactor
from weir.proxy.workers import handle, worker

if TYPE_CHECKING:
    from types import FrameType

FILE_BYTES: Final = 8192
LONG_NS: Final = 5_000_000
"""A turn that takes longer is counted."""
LOOK_S: Final = 0.004
"""CPU after which a turn is interrupted."""
VERY_LONG_NS: Final = 10_000_000
_HEAD: Final = struct.Struct("<qqqqi")
_ENTRIES: Final = 10
"""Calls of the stack that are kept."""


class Turns(NamedTuple):
    longest_ns: int
    number: int
    long: int
    """Number of turns longer than `LONG_NS`."""
    very_long: int
    """Number of turns longer than `VERY_LONG_NS`."""
    stack: str
    """Parts of the longest turn, then its calls some milliseconds after its beginning."""


class TurnsFile:
    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(FILE_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), FILE_BYTES)

    def read(self) -> Turns:
        longest_ns, number, long, very_long, size = _HEAD.unpack_from(self._map)
        stack = self._map[_HEAD.size : _HEAD.size + size].decode("utf-8", "replace")
        return Turns(longest_ns, number, long, very_long, stack)

    def reset(self) -> None:
        _HEAD.pack_into(self._map, 0, 0, 0, 0, 0, 0)

    def note(self, ns: int, stack: list[str]) -> None:
        longest_ns, number, long, very_long, size = _HEAD.unpack_from(self._map)
        if ns > longest_ns:
            text = "".join(stack).encode()[-(FILE_BYTES - _HEAD.size) :]
            longest_ns, size = ns, len(text)
            self._map[_HEAD.size : _HEAD.size + size] = text
        long, very_long = long + (ns > LONG_NS), very_long + (ns > VERY_LONG_NS)
        _HEAD.pack_into(self._map, 0, longest_ns, number + 1, long, very_long, size)


class Parts:
    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self._before = resource.getrusage(resource.RUSAGE_THREAD)
        self._collector_ns = 0

    def collected(self, phase: str, _info: dict[str, int]) -> None:
        """Count the CPU of a collection; called by `gc` at its start and its stop."""
        self._collector_ns += time.thread_time_ns() * (1 if phase == "stop" else -1)

    def told(self) -> str:
        """Return a line with the parts of the turn so far."""
        before, now = self._before, resource.getrusage(resource.RUSAGE_THREAD)
        user, system = (now.ru_utime - before.ru_utime) * 1e3, (now.ru_stime - before.ru_stime) * 1e3
        faults, collector = now.ru_minflt - before.ru_minflt, self._collector_ns / 1e6
        told = f"user {user:.1f} ms, kernel {system:.1f} ms, {faults} page faults"
        return f"{told}, collector {collector:.1f} ms\n"


def watch(file: TurnsFile) -> None:
    """Have the reactor of this process write its turns to the file."""
    turn, stack, parts = Reactor.turn, list[str](), Parts()
    gc.callbacks.append(parts.collected)

    def look(_number: int, frame: FrameType | None) -> None:
        stack[:] = traceback.format_stack(frame, _ENTRIES)

    def watched(self: Reactor, wait_s: float | None) -> None:
        stack.clear()
        parts.begin()
        signal.setitimer(signal.ITIMER_VIRTUAL, LOOK_S)
        began_ns = time.thread_time_ns()
        turn(self, wait_s)
        ns = time.thread_time_ns() - began_ns
        file.note(ns, [parts.told(), *stack] if ns > LONG_NS // 2 else stack)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)

    signal.signal(signal.SIGVTALRM, look)
    Reactor.turn = watched  # type: ignore[method-assign]  # only in this process


if __name__ == "__main__":
    if sys.argv[1] == "run":
        handle.WORKER = "tests.attacks.weir"  # type: ignore[misc]  # only in this process
        main()
    else:
        watch(TurnsFile(Path(os.environ["WEIR_TURNS"])))
        worker.main(int(sys.argv[1]))
