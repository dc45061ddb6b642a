"""A session of a user does the same for a request as one of nobody: the figures of the part `sasl`, without
their noise.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from types import FrameType

import pytest

from bench import sasl
from bench.canned import TOPICS, Answers
from bench.rows import ROWS, Row
from tests.proxy.wire import Wire, new_connection
from weir.proxy.connection.connection import ANONYMOUS
from weir.quotas import parse

ANSWERS = Answers(9092)
REQUESTS = 20


def session(*greetings: str) -> Wire:
    wire = Wire(new_connection(parse(sasl.QUOTAS)))
    for greeting in map(bytes.fromhex, greetings):
        wire.feed(0, client=greeting)
        wire.feed(0, broker=ANSWERS.frame(greeting))
    return wire


def calls(wire: Wire, request: bytes) -> Counter[str]:
    """What is called, of Python and of C, for requests and their responses, when the first have passed."""
    answer = ANSWERS.frame(request)
    called: Counter[str] = Counter()

    def note(frame: FrameType, event: str, function: object) -> None:
        if event == "call":
            called[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            called[repr(getattr(function, "__qualname__", function))] += 1

    gc.disable()  # its callbacks (Hypothesis has one) would count
    try:
        for number in range(2 + REQUESTS):
            if number == 2:
                sys.setprofile(note)
            wire.feed(number, client=request)
            wire.feed(number, broker=answer)
    finally:
        sys.setprofile(None)
        gc.enable()
    return called


@pytest.mark.parametrize("row", sasl.rows(ROWS), ids=lambda row: row.name)
def test_after_sasl_a_request_makes_as_many_calls_as_on_a_plain_connection(row: Row) -> None:
    request = row.request(TOPICS).frame
    plain, of_alice = session(), session(*sasl.ENTRY.greetings)
    found = calls(plain, request), calls(of_alice, request)
    assert (plain.session.client.user, of_alice.session.client.user) == (ANONYMOUS, "alice")
    assert found[0].total() > 10 * REQUESTS
    assert found[0] == found[1]
