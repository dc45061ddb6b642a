"""A running `weir capture`."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

from tests.integration.weir import BROKERS, Weir

if TYPE_CHECKING:
    from pathlib import Path

SUMMARY = re.compile(
    r"(\d+) connections, (\d+) bytes of clients, (\d+) bytes of brokers, (\d+) bytes dropped"
)


class CapturingWeir(Weir):
    def __init__(self, upstream: str, out: Path, *options: str) -> None:
        super().__init__(upstream)
        self._command = [
            *(sys.executable, "-m", "weir.cli", "capture", "--out", str(out)),
            *("--upstream", upstream, "--listen", self.bootstrap),
            *("--broker-ports", f"{self.port + 1}-{self.port + BROKERS}"),
            *("--log-level", "debug", "--log-format", "json"),
            *options,
        ]
