"""`weir top`, the terminal program: its texts at several widths, its keys, outages and pauses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from tests.admin.fake_api import ENTITIES, FakeApi, connection, entity, served
from weir.cli.admin_endpoint import EndpointAccess
from weir.cli.top.command import asking
from weir.cli.top.freshness import LATE_S
from weir.cli.top.readings import Reader, Wanted, read
from weir.proxy.config.config import parse_address

pytest.importorskip("textual")

from textual.pilot import Pilot

from weir.cli.top.program import Program

NEVER_S = 3600.0
"""Interval of readings (s): tests read when they choose."""
HEAD = """\
Weir weir-1:9092  ready  2 wait  6 conns  1844 req/s  in 3.06MB/s  out 1.28MB/s
! Broker 3 cannot be reached: connection refused (for 1m). Look at the broker
and its network. Its clients are refused, so that they back off.
"""
KEYS = "e Entities c Conns b Brokers s Sort / Filter h Shadow spc Pause esc Back q Quit"
ENTITIES_80 = f"""\
{HEAD}entities, throttled ones first, by usage
entity                   quota    broker     rate    limit  used throttle since
user=alice, client-id=e… produce       2 1.31MB/s    1MB/s  131%   310 ms    1m
client-id=<script>docum… request       2    26.4%      25%  106%    48 ms    1h
user=carol               produce       1 1.71MB/s    2MB/s   86%        -     -
user=bob, client-id=rep… consume       1 1.23MB/s    5MB/s   25%        -     -
user=ops, client-id=top… mutation    all    0.4/s     10/s    4%        -     -
{KEYS}
"""
CONNECTIONS_80 = f"""\
{HEAD}connections, by waits
peer                  client-id        broker state        wait    in/s   out/s
10.0.0.7:50001        etl                   2 throttled  310 ms   958kB  4.19kB
10.0.0.7:50002        etl                   2 throttled  310 ms   958kB  4.19kB
10.0.0.7:50003        etl                   2 throttled  310 ms   958kB  4.19kB
10.0.0.7:50004        etl                   2 throttled  310 ms   958kB  4.19kB
192.0.2.66:41000      <script>documen…      2 throttled  310 ms   958kB  4.19kB
10.0.0.9:38122        reports               1 open            -   958kB  4.19kB
{KEYS}
"""
ENTITY = """\
entity           user=alice, client-id=etl
quota            producer_byte_rate
set by entry     user=alice, client-id=etl
broker           2
rate             1.31MB/s
limit            1MB/s
used             131% ████████████████████████████████████████
throttled        for 1m
throttle left    310 ms
since the start  212 throttles, 61.4 s in sum
connections      4
from             10.0.0.7
libraries        librdkafka 2.5.0
"""


class Shown(NamedTuple):
    program: Program
    pilot: Pilot[None]
    api: FakeApi
    time: list[float]
    """The program's clock (s), which the test moves."""

    async def press(self, *keys: str) -> str:
        """Press keys, wait for the reading that they cause, and return the screen."""
        await self.pilot.press(*keys)
        return await self.text()

    async def reread(self) -> str:
        await self.program.reread()
        return await self.text()

    async def text(self) -> str:
        await self.pilot.pause()
        await self.program.workers.wait_for_complete()
        await self.pilot.pause()
        strips = self.program.screen._compositor.render_strips()  # textual exports escape codes or SVG only
        return "\n".join([*filter(None, (strip.text.rstrip() for strip in strips)), ""])


@contextmanager
def reading(api: FakeApi) -> Iterator[Reader]:
    with served(api) as url:
        ask = asking(parse_address(url.removeprefix("http://"), "admin"), EndpointAccess())
        yield lambda wanted: read(ask, wanted)


def on_screen(
    script: Callable[[Shown], Awaitable[None]],
    api: FakeApi | None = None,
    wanted: Wanted | None = None,
    size: tuple[int, int] = (80, 24),
) -> Program:
    """Run the program on a fake screen, and a script of keys and checks. Return the ended program."""
    found = api or FakeApi()
    time = [0.0]

    async def main(reader: Reader) -> Program:
        first = wanted or Wanted()
        program = Program(reader, first, reader(first), NEVER_S, lambda: time[0])
        async with program.run_test(size=size) as pilot:
            await script(Shown(program, pilot, found, time))
        return program

    with reading(found) as reader:
        return asyncio.run(main(reader))


def test_enter_shows_all_of_an_entity_with_its_connections_and_escape_the_list_again() -> None:
    async def script(shown: Shown) -> None:
        text = await shown.press("enter")
        assert ENTITY in text
        assert "310 ms" in text
        assert text.count("131%") == 1
        assert "10.0.0.7:50001" in text
        query = "user=alice&client_id=etl&broker=2&limit=20&sort=waits"
        assert f"GET /api/connections?{query}" in shown.api.requests
        shown.api.entities = ENTITIES[1:]
        assert "no longer in the list; this was the latest:" in await shown.reread()
        assert "user=carol" in await shown.press("escape")

    on_screen(script, size=(80, 60))


def test_an_entity_at_several_brokers_is_one_row_with_its_brokers_inside() -> None:
    at_rest = {"throttled": False, "throttled_since_ms": None, "throttle_ms": 0, "connections": 1}
    one = ENTITIES[0]
    other = replace(one, id="e9", broker=3, rate=190_000.0, usage=0.19, peers=("10.0.0.8",), **at_rest)

    async def script(shown: Shown) -> None:
        row = "user=alice, client-id=e… produce      Σ2  1.5MB/s    1MB/s  131%   310 ms    1m"
        assert (await shown.text()).count("user=alice") == 1
        assert row in await shown.text()
        text = await shown.press("enter")
        assert "connections      5\nfrom             10.0.0.7, 10.0.0.8\n" in text
        assert "2       1.31MB/s  1MB/s  131%  310 ms         for 1m     4" in text
        assert "3       190kB/s   1MB/s  19%   0 ms           -          1" in text
        assert "GET /api/connections?user=alice&client_id=etl&limit=20&sort=waits" in shown.api.requests

    on_screen(script, FakeApi(entities=(one, other)), size=(80, 60))


def test_the_filter_is_asked_of_the_api_and_escape_removes_it() -> None:
    async def script(shown: Shown) -> None:
        text = await shown.press("slash", *"bob", "enter")
        assert "with bob" in text
        assert "user=carol" not in text
        assert shown.api.requests[-1] == "GET /api/throttled?q=bob&limit=200&shadow=false"
        assert await shown.press("escape") == ENTITIES_80
        assert await shown.press("slash", *"xyz", "escape") == ENTITIES_80

    on_screen(script)


def test_shadow_quotas_are_shown_at_the_start_if_no_quota_is_enforced() -> None:
    async def script(shown: Shown) -> None:
        text = await shown.text()
        assert "entities of shadow quotas, throttled ones first" in text
        assert "user=alice, client-id=e… request       1      61%      50%  122%" in text
        assert "of shadow quotas" not in await shown.press("h")
        assert "of shadow quotas" in await shown.press("h")

    on_screen(script, FakeApi(replace(FakeApi().status, all_in_shadow=True), entities=()))


def test_an_outage_keeps_the_data_tells_their_age_and_its_end() -> None:
    async def script(shown: Shown) -> None:
        shown.api.failing = True
        shown.time[0] = 14.0
        text = await shown.reread()
        assert "data are 14s old: " in text
        assert "status 503: the fake" in text
        assert "Weir weir-1:9092  stale" in text
        assert "ready" not in text
        assert ENTITIES_80.splitlines()[4] in text
        assert "connections, by" not in await shown.press("c")
        shown.api.failing = False
        shown.time[0] = 75.0
        text = await shown.reread()
        assert "Weir answers again, after 1m" in text
        assert "connections, by waits" in text
        shown.time[0] = 106.0
        assert await shown.reread() == CONNECTIONS_80

    on_screen(script)


def test_data_are_stale_while_weir_hangs_and_before_its_error() -> None:
    async def script(shown: Shown) -> None:
        shown.time[0] = NEVER_S + LATE_S
        shown.program.show()
        assert await shown.text() == ENTITIES_80
        shown.time[0] += 1
        shown.program.show()
        text = await shown.text()
        assert "Weir weir-1:9092  stale" in text
        assert "data are 1h old: Weir does not answer" in text
        assert "stale" not in await shown.reread()

    on_screen(script)


def test_hostile_names_are_text_without_markup_or_escape_sequences() -> None:
    hostile = entity(
        "x", user="\x1b[2J[bold]m[/bold]", client_id="[/]\x1b]0;owned\x07", sentence="\x1b[2J[/]"
    )

    async def script(shown: Shown) -> None:
        text = await shown.text()
        assert "user=\\x1b[2J[bold]m[/bold]" in text
        text = await shown.press("enter")
        assert "client-id=[/]\\x1b]0;owned\\x07" in text
        assert "\x1b" not in text
        text = await shown.press("escape", "c")
        assert "[/bold" in text
        assert "\x1b" not in text

    api = FakeApi(entities=(hostile,), connections=(connection(1, client_id="\x1b[2J[/bold]"),))
    on_screen(script, api, size=(130, 40))


def test_q_ends_the_program_and_ctrl_c_interrupts_it() -> None:
    async def ended(shown: Shown) -> None:
        await shown.pilot.press("q")

    async def interrupted(shown: Shown) -> None:
        await shown.pilot.press("ctrl+c")

    program = on_screen(ended)
    assert (program.return_code, program.interrupted) == (0, False)
    program = on_screen(interrupted)
    assert (program.return_code, program.interrupted) == (0, True)
