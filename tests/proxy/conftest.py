"""Relays over plain TCP and over TLS; scripts under either driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import trio

from tests.proxy.rigs import Rig, open_descriptors
from tests.proxy.stage import Script, set_stage
from weir.proxy.net.drivers import monotonic_us, run_hosting_trio
from weir.proxy.net.reactor import Reactor
from weir.proxy.run import single

CLOSE_S: Final = 5.0


@pytest.fixture(params=["plain", "tls"])
def new_rig(request: pytest.FixtureRequest) -> Iterator[Callable[..., Rig]]:
    """Makes rigs, plain or with TLS on both sides; afterwards no descriptor may be left."""
    before = open_descriptors()
    made: list[Rig] = []
    tls = ("client", "broker") if request.param == "tls" else ()

    def make(*args: object, **kwargs: object) -> Rig:
        made.append(Rig(*args, tls=tls, **kwargs))  # type: ignore[arg-type]  # as given
        return made[-1]

    yield make
    for rig in made:
        rig.close()
        assert len(rig.ends) == 1
    assert open_descriptors() == before


@pytest.fixture(params=["hosting", pytest.param("in trio", marks=pytest.mark.slow)])
def play(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Runs a script on a stage, driven either way; no descriptor may be left open."""

    def run(script: Script | None, brokers: tuple[int, ...] = (0,), **options: Any) -> None:
        before = open_descriptors()
        reactor = Reactor(monotonic_us)
        try:
            if request.param == "hosting":
                run_hosting_trio(reactor, lambda: set_stage(reactor, script, brokers, options, drive=False))
            else:
                trio.run(lambda: set_stage(reactor, script, brokers, options, drive=True))
        except BaseExceptionGroup as group:
            raise single(group) from None
        finally:
            reactor.close()
        assert left_open(before) == set()

    return run


def left_open(before: set[str]) -> set[str]:
    """What is open that was not: threads of the test's own may be about to close theirs."""
    until_s = time.monotonic() + CLOSE_S
    while (left := open_descriptors() - before) and time.monotonic() < until_s:
        time.sleep(0.01)
    return left
