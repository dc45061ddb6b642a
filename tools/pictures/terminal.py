"""`weir top` as an SVG: the terminal program at a running Weir."""

from __future__ import annotations

import asyncio
from typing import Final

from tools.pictures import svg
from weir.cli.admin_endpoint import EndpointAccess
from weir.cli.top.command import asking
from weir.cli.top.program import Program
from weir.cli.top.readings import Wanted, read
from weir.proxy.config.config import parse_address

SIZE: Final = (112, 12)
"""Columns and lines of the terminal."""
SETTLE_S: Final = 2.0
NEVER_S: Final = 3600.0


def draw(address: str) -> str:
    """Return an SVG of the list of entities, read from the admin endpoint at HOST:PORT."""
    ask = asking(parse_address(address, "admin"), EndpointAccess())
    wanted = Wanted()
    program = Program(lambda chosen: read(ask, chosen), wanted, read(ask, wanted), NEVER_S)
    return svg.without_fonts(asyncio.run(_screenshot(program)))


async def _screenshot(program: Program) -> str:
    async with program.run_test(size=SIZE) as pilot:
        await pilot.pause(SETTLE_S)  # the keys are drawn after the rows
        return program.export_screenshot(title="weir top")
