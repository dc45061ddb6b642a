"""One request to a broker on a connection of its own."""

from __future__ import annotations

from typing import TypeVar

from protocol.values import Message
from proxy.addresses import Address
from proxy.control.cluster.access import DIRECT, Access

M = TypeVar("M", bound=Message)


async def ask(
    address: Address,
    request: Message,
    answer: type[M],
    version: int,
    timeout_s: float,
    access: Access = DIRECT,
) -> M:
    """Connect, log in, send the request in a version with header v1, and return the response.

    Each step may take `timeout_s`. Raises QuestionError with the address in its text.
    """
    async with await access.connect(address, timeout_s) as connection:
        return await connection.ask(request, answer, version)
