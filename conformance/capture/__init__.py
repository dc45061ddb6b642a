"""Captures: files of recorded connections. docs/reference/capture-format.md describes the format.

- `blocks`: the parts of a file; `writer` writes and continues files, `reader` reads them in constant memory.
- `recorder`: takes bytes from connections without slowing them. `shared_queue` leads from there to `writing`,
  the process that writes them.
- `redaction`: removes credentials from events (`credentials` finds them), and on request the payloads of
  records (`records_blanking`), frame by frame (`frame_edits`).
- `json_lines`, `pcap`: conversions to JSON lines, and from pcap files with `tcp` (reassembly).

A recorder's writing has a process of its own. A thread would take the interpreter's lock: each system call
of the event loop releases the lock. The event loop then waits for it up to the switch interval (5 ms). On two
busy cores, connections had 0.4 of their throughput with such a thread. Switch intervals of 0.1 ms and 0.02 ms
changed that to 0.4 and 0.5. With the process, four measurements on the same machine gave 0.5, 0.8, 1.0 and
1.3: other programs also ran. The copy to the queue remains, with 0.1 ms of CPU time per MB.
`python -m tests.conformance.capture.speed` repeats the measurement.

The queue is shared memory and not a pipe, because Linux limits a pipe to 1 MiB: the traffic of a millisecond.
All its pages are mapped at the start: with a page fault for each 4 KiB, the first copy of 64 KiB took 60 µs
instead of 12 µs.

A capture is read as a sequence of events (`conformance.events`): `for event in read("file.weircap")`.
"""

from __future__ import annotations

from weir.conformance.capture.blocks import CaptureError, DamagedCaptureError, Run
from weir.conformance.capture.reader import CaptureReader, read
from weir.conformance.capture.writer import CaptureWriter

__all__ = ["CaptureError", "CaptureReader", "CaptureWriter", "DamagedCaptureError", "Run", "read"]
