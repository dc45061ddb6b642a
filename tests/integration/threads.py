"""Threads of a relay that tests run, which end with it."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Threads:
    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []

    def start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
