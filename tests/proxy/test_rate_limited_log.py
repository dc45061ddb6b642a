"""Lines that peers cause at any rate: the first of a kind at once, the others counted."""

import pytest

from weir.proxy.control.rate_limited_log import RateLimitedLog


class Lines:
    def __init__(self) -> None:
        self.written: list[tuple[int, object]] = []
        self.log = RateLimitedLog()

    def note(self, event: int, kind: str = "refused") -> None:
        self.log.note(
            kind, lambda count, details: self.written.append((count, details["event"])), {"event": event}
        )

    def taken(self) -> list[tuple[int, object]]:
        taken, self.written[:] = list(self.written), []
        return taken


@pytest.mark.trio
async def test_a_kind_is_written_at_once_and_then_a_line_per_look() -> None:
    lines = Lines()
    lines.note(1)
    lines.note(2)
    assert lines.taken() == [(1, 1)]
    await lines.log.look()  # the first line may be a moment old
    assert lines.taken() == []
    lines.note(3)
    await lines.log.look()
    assert lines.taken() == [(2, 3)], "their number, and the latest one"
    await lines.log.look()
    lines.note(4)
    assert lines.taken() == [(1, 4)], "after a quiet second at once again"


def test_what_was_counted_is_written_at_the_end() -> None:
    lines = Lines()
    lines.note(1)
    lines.note(2)
    lines.note(3, kind="failed")
    lines.log.close()
    assert lines.taken() == [(1, 1), (1, 3), (1, 2)]
