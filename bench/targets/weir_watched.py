"""Weir with its admin endpoint read all the time: the page is open in Chromium, `weir top` in a terminal, and
`/metrics` is read every five seconds. Only Weir's own CPU is measured, but it includes these answers.
"""

from __future__ import annotations

import sys
from typing import Final

from bench.targets.target import Running, Surroundings, Target
from bench.targets.weir import MAIN, THIS_TREE, quota_file, start
from tests.kafka.ports import free_range
from tests.kafka.settings import HOST
from tools.pictures.browser import CHROMIUM, HEADLESS

NAME: Final = "weir-watched"
_IN_A_TERMINAL: Final = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"
_SCRAPER: Final = """\
import sys, time, urllib.request
while True:
    urllib.request.urlopen(sys.argv[1], timeout=10).read()
    time.sleep(5)
"""


def _start(surroundings: Surroundings) -> Running:
    admin = f"{HOST}:{free_range(1)}"
    running = start(surroundings, NAME, THIS_TREE, quota_file(), "--admin", admin)
    processes = surroundings.processes
    browser = [str(CHROMIUM), *HEADLESS, "--remote-debugging-port=0"]
    browser.append(f"--user-data-dir={surroundings.directory / 'profile'}")
    processes.start("page", [*browser, f"http://{admin}/"])
    top = [sys.executable, "-c", MAIN, str(THIS_TREE), "top", "--admin", admin]
    processes.start("top", ["env", "TERM=xterm", sys.executable, "-c", _IN_A_TERMINAL, *top])
    processes.start("scraper", [sys.executable, "-c", _SCRAPER, f"http://{admin}/metrics"])
    return running


def _missing() -> str | None:
    return None if CHROMIUM else "no Chromium in the PATH"


WEIR_WATCHED: Final = Target(NAME, "Weir, quotas on, watched", _start, _missing)
