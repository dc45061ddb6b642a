"""Run Weir so that its main thread, and with it the reactor, hangs at SIGUSR1, while other threads run on:
`python -m tests.night.hanging python -m weir.cli ...`.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Final

from weir.cli.main import main

HANG_S: Final = 35.0
"""Duration (s) of the hang: longer than the time of systemd's watchdog."""

if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lambda _number, _frame: time.sleep(HANG_S))
    sys.argv = ["weir", *sys.argv[sys.argv.index("weir.cli") + 1 :]]
    main()
