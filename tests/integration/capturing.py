"""A running `weir capture`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests.integration.weir import BROKERS, Weir

SUMMARY = re.compile(
    r"(\d+) connections, (\d+) bytes of clients, (\d+) bytes of brokers, (\d+) bytes dropped"
)


class CapturingWeir(Weir):
    def __init__(self, upstream: str, out: Path, *options: str) -> None:
        super().__init__(upstream)
        self._command = [
            *(sys.executable, "-m", "weir.cli", "capture", "--output", str(out)),
            *("--upstream", upstream, "--listen", self.bootstrap),
            *("--set", f"broker_ports={self.port + 1}-{self.port + BROKERS}"),
            *("--set", "log_level=debug"),
            *options,
        ]
