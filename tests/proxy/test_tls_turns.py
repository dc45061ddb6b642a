"""Turns of the threads that compute handshakes."""

from __future__ import annotations

import threading

import pytest
import trio
import trio.testing

from weir.proxy.net.tls.turns import HandshakeTurns


class Steps:
    """Steps that each wait to be allowed; `began` has their hosts in the order of their turns."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.may_end = threading.Semaphore(0)

    def of(self, host: str) -> None:
        self.began.append(host)
        self.may_end.acquire()


@pytest.mark.trio
async def test_addresses_have_their_turns_one_after_another() -> None:
    turns, steps = HandshakeTurns(1), Steps()
    async with trio.open_nursery() as nursery:
        for host in ("many", "many", "many", "many", "few", "few", "one"):
            nursery.start_soon(turns.run, host, lambda host=host: steps.of(host))
            await trio.testing.wait_all_tasks_blocked()
        for _ in range(7):
            steps.may_end.release()
    assert steps.began == ["many", "many", "few", "one", "many", "few", "many"]


@pytest.mark.trio
async def test_a_cancelled_step_leaves_its_turn_to_the_next() -> None:
    turns, steps = HandshakeTurns(1), Steps()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turns.run, "first", lambda: steps.of("first"))
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(0):
            await turns.run("gone", lambda: steps.of("gone"))
        nursery.start_soon(turns.run, "second", lambda: steps.of("second"))
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(2):
            steps.may_end.release()
    assert steps.began == ["first", "second"]
    assert await turns.run("third", lambda: 3) == 3


@pytest.mark.trio
async def test_a_step_that_raises_frees_its_thread() -> None:
    turns = HandshakeTurns(1)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            await turns.run("a", lambda: 1 // 0)
