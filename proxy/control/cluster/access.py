"""Weir's own connections to brokers: address, TLS and login."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

import trio

from weir.protocol.values import Message
from weir.proxy.addresses import Address
from weir.proxy.config.principals import Credentials
from weir.proxy.control.cluster.connection import M, OwnConnection, TlsError, failures
from weir.proxy.control.cluster.login import log_in
from weir.proxy.net.tls.handshakes import BrokerTlsError
from weir.proxy.net.tls.upstream import Upstream

if TYPE_CHECKING:
    from weir.proxy.config.config import Config
    from weir.proxy.net.tls.contexts import ContextOfFiles


@dataclass(frozen=True, slots=True)
class Access:
    """Weir's credentials for brokers, and the TLS settings for connections to brokers."""

    credentials: Credentials | None = None
    tls: ContextOfFiles | None = None

    @classmethod
    def of(cls, config: Config) -> Self:
        """Return an Access with the credentials and TLS settings that the configuration has for brokers."""
        return cls(config.credentials, config.tls.upstream)

    async def connect(self, address: Address, timeout_s: float) -> OwnConnection:
        """Connect to a broker and log in; return the connection. Connecting and logging in may take
        `timeout_s` together, and each later response may take `timeout_s` too.

        Raises QuestionError (LoginError and TlsError are subclasses); ConfigError if the files of
        `upstream_*` cannot be used.
        """
        with failures(address, timeout_s, reachable=False), trio.fail_after(timeout_s):
            try:
                stream = await Upstream(self.tls).open_stream(address)
            except BrokerTlsError as error:
                raise TlsError(f"{address}: {error}") from None
        connection = OwnConnection(stream, address, timeout_s)
        try:
            if self.credentials is not None:
                await log_in(connection, self.credentials)
        except BaseException:
            await connection.aclose()
            raise
        return connection

    async def ask(
        self, address: Address, request: Message, answer: type[M], version: int, timeout_s: float
    ) -> M:
        """Open a connection to the broker, send one request in `version`, close the connection, and return
        the response.

        Raises the same errors as `connect`.
        """
        async with await self.connect(address, timeout_s) as connection:
            return await connection.ask(request, answer, version)


DIRECT: Final = Access()
"""Access without TLS and credentials."""
