"""Captures: files of recorded connections. docs/reference/capture-format.md describes the format.

- `blocks`: the parts of a file; `writer` writes and continues files, `reader` reads them in constant memory.
- `recorder`: takes bytes from connections without slowing them, and writes from a thread of its own.
- `redaction`: removes credentials from events (`credentials` finds them), and on request the payloads of
  records (`records_blanking`), frame by frame (`frame_edits`).
- `json_lines`, `pcap`: conversions to JSON lines, and from pcap files with `tcp` (reassembly).

A capture is read as a sequence of events (`conformance.events`): `for event in read("file.weircap")`.
"""

from __future__ import annotations

from weir.conformance.capture.blocks import CaptureError, DamagedCaptureError, Run
from weir.conformance.capture.reader import CaptureReader, read
from weir.conformance.capture.writer import CaptureWriter

__all__ = ["CaptureError", "CaptureReader", "CaptureWriter", "DamagedCaptureError", "Run", "read"]
