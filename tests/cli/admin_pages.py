"""Serve pages of the admin endpoint while a command asks for them."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import trio

from tests.kafka.ports import free_range
from tests.kfake.cluster import HOST
from tests.proxy.stage import LONG_S
from tests.proxy.supervised import supervisor
from weir.proxy.addresses import Address
from weir.proxy.admin.endpoint import Endpoint, listen

if TYPE_CHECKING:
    from starlette.types import ASGIApp

T = TypeVar("T")


def asked(app: ASGIApp, ask: Callable[[str], T], tls: ssl.SSLContext | None = None) -> T:
    """Return what `ask` makes of the address of an endpoint that serves this application."""
    context = None if tls is None else lambda: tls

    async def main() -> T:
        port = free_range(1)
        with trio.fail_after(LONG_S):
            async with trio.open_nursery() as nursery:
                listening = await listen(Address(HOST, port), LONG_S)
                nursery.start_soon(Endpoint(listening, app, context).serve, supervisor())
                answer = await trio.to_thread.run_sync(ask, f"{HOST}:{port}")
                nursery.cancel_scope.cancel()
        return answer

    return trio.run(main)
