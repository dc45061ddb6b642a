"""Record a run of the demonstration: the rates of one producer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tools.pictures import PictureError
from tools.pictures.rates import Rates, by_second
from weir.demo.measure import ClientResult
from weir.demo.rows import Scene
from weir.demo.run import run
from weir.demo.screens import BEFORE, PlainScreen

SECONDS: Final = 15.0
AFTER_S: Final = 20
"""Number of seconds under the quota that the picture shows."""
CLIENT_ID: Final = "steady"
"""The producer with smooth pacing: its quota needs no warm-up, so it asks for 5 MB/s all the time."""


class Recording(PlainScreen):
    """A screen that prints the progress of a run, and keeps the data of its pictures."""

    def __init__(self) -> None:
        """Keep nothing yet."""
        super().__init__()
        self._results: Sequence[ClientResult] = ()
        self._samples: list[tuple[float, int]] = []
        self._written_s = 0.0

    def update(self, phase: str, done: float, results: Sequence[ClientResult]) -> None:
        """Print the progress, and keep a sample of the producer's bytes."""
        super().update(phase, done, results)
        result = _of_producer(results)
        if not self._samples:
            self._samples.append((result.before.began.at_s, result.before.began.payload_bytes))
        self._samples.append((result.now.at_s, result.now.payload_bytes))
        if phase == BEFORE:
            self._written_s = result.now.at_s

    def close(self, scene: Scene, results: Sequence[ClientResult]) -> None:
        """Print and keep the results."""
        super().close(scene, results)
        self._results = results

    def rates(self) -> Rates:
        """Return the rates of the producer in each second. Raises PictureError without a run."""
        result = _of_producer(self._results)
        full_s = int(self._written_s - self._samples[0][0] + 0.01)
        rates = by_second(self._samples, max(self._written_s - full_s, self._samples[0][0]))
        return Rates(rates[:full_s], rates[full_s : full_s + AFTER_S], result.quota or 0, result.spec.demand)


def _of_producer(results: Sequence[ClientResult]) -> ClientResult:
    for result in results:
        if result.spec.client_id == CLIENT_ID:
            return result
    raise PictureError(f"the demonstration has no results of {CLIENT_ID!r}")


def record() -> Recording:
    """Run the demonstration. Raises DemoError if it cannot run, PictureError if a rate did not pass."""
    recording = Recording()
    if not run(None, SECONDS, recording):
        raise PictureError("a rate did not pass; no picture is drawn. Try again when the machine is quieter")
    return recording
