"""The way to brokers: how Weir's own connections reach them, and who they are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import trio

from proxy.addresses import Address
from proxy.cluster.connection import Connection, failures
from proxy.cluster.login import log_in
from proxy.credentials import Credentials
from proxy.transport import sockets

if TYPE_CHECKING:
    from proxy.config import Config


@dataclass(frozen=True, slots=True)
class Access:
    """Credentials, if brokers want any."""

    credentials: Credentials | None = None

    @classmethod
    def of(cls, config: Config) -> Self:
        """As configured."""
        return cls(config.credentials)

    async def connect(self, address: Address, timeout_s: float) -> Connection:
        """Connect, and log in; each step may take `timeout_s`, as may each answer then. Raises
        QuestionError, of which LoginError is one.
        """
        with failures(address, timeout_s, reachable=False), trio.fail_after(timeout_s):
            sock = await sockets.connect(address)
        connection = Connection(trio.SocketStream(trio.socket.from_stdlib_socket(sock)), address, timeout_s)
        try:
            if self.credentials is not None:
                await log_in(connection, self.credentials)
        except BaseException:
            await connection.aclose()
            raise
        return connection


DIRECT: Final = Access()
"""Without TLS, and as nobody."""
