"""The writing of a capture, with the queue and the reports of a recorder, in this process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from weir.conformance.capture import CaptureWriter, Run, read
from weir.conformance.capture.redaction import Redaction
from weir.conformance.capture.shared_queue import SIZE_MIN, QueueReceiver, QueueSender
from weir.conformance.capture.writing import CaptureReport, Writing
from weir.conformance.events import Bytes, Closed, Dropped, Event, Opened, Side

EVENTS: list[Opened | Closed | Dropped] = [
    Opened(3, 1, "c:1", "s:2", "broker 1"),
    Dropped(3, 2, Side.SERVER, 1 << 40),
    Closed(3, 4, Side.CLIENT),
]


def queue() -> tuple[QueueSender, QueueReceiver]:
    sender = QueueSender(SIZE_MIN)
    return sender, QueueReceiver(sender.memory, sender.size, sender.messages)


def test_a_queue_refuses_bytes_until_the_receiver_has_released_as_many() -> None:
    sender, receiver = queue()
    assert sender.put_bytes(0, 1, Side.CLIENT, memoryview(bytes(SIZE_MIN - 1)))
    assert not sender.put_bytes(0, 1, Side.CLIENT, memoryview(bytes(2)))
    list(receiver.receive(wait=True) or ())
    assert receiver.released == SIZE_MIN - 1
    assert not sender.has_room(2)
    sender.released = receiver.released
    assert sender.put_bytes(0, 2, Side.CLIENT, memoryview(b"ab"))
    assert list(receiver.receive(wait=True) or ()) == [Bytes(0, 2, Side.CLIENT, b"ab")]
    sender.close()
    sender.close_receiver()


def test_an_error_of_redaction_is_told_and_not_taken_for_the_end(tmp_path: Path) -> None:
    class Broken(Redaction):
        def feed(self, event: Event) -> Iterator[Event]:
            raise KeyError(event.connection)

    sender, receiver = queue()
    for event in EVENTS:
        sender.put(event)
    sender.close()
    reports: list[CaptureReport] = []
    last = Writing(CaptureWriter(tmp_path / "c", Run(1)), Broken(), receiver, reports.append).run()
    assert last.error == f"{tmp_path / 'c'}: cannot write it: KeyError(3)"
    assert os.read(sender.messages, 1) == b""  # the queue was emptied
    assert list(read(tmp_path / "c")) == []
    sender.close_receiver()
