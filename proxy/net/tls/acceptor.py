"""A new client of a TLS listener: handshake, principal, requested broker."""

from __future__ import annotations

import socket
from typing import NamedTuple

from proxy.close_reasons import CloseReason
from proxy.connection.connection import ANONYMOUS
from proxy.net.tls.distinguished_name import subject_of
from proxy.net.tls.handshakes import HandshakeError, Handshakes
from proxy.net.tls.principal_mapping import UnmappedError
from proxy.net.tls.rules import ListenerRules
from proxy.net.tls_socket import TlsSocket


class RefusedError(Exception):
    """The client cannot be served. Its socket is open, so that the client can be kept from reconnecting at
    once.
    """

    def __init__(self, reason: CloseReason, detail: str, sock: socket.socket | TlsSocket) -> None:
        super().__init__(detail)
        self.reason = reason
        self.sock = sock


class AcceptedClient(NamedTuple):
    """A client after its handshake."""

    sock: TlsSocket
    user: str
    node_id: int | None
    """The broker named by SNI, else the listener's; None for bootstrap."""


class TlsAcceptor:
    """Accepts the clients of all listeners of one server."""

    def __init__(self, rules: ListenerRules) -> None:
        """The files of `rules` may change while the acceptor is used."""
        self._rules = rules
        self._handshakes = Handshakes()

    async def enter(self, sock: socket.socket, node_id: int | None) -> AcceptedClient:
        """Shake hands with a client of this broker's listener (None: bootstrap). Raises RefusedError."""
        rules = self._rules
        try:
            secured = await self._handshakes.accept(sock, rules.files.context)
        except HandshakeError as error:
            raise RefusedError(error.reason, str(error), error.sock) from None
        named = rules.names.node_id(secured.server_name) if rules.names is not None else None
        try:
            user = self._user(secured.certificate)
        except (UnmappedError, ValueError) as error:
            raise RefusedError(CloseReason.PRINCIPAL_UNMAPPED, str(error), secured.sock) from None
        return AcceptedClient(secured.sock, user, node_id if named is None else named)

    def _user(self, certificate: bytes | None) -> str:
        """Return the principal's name. Raises UnmappedError, and ValueError for an unreadable certificate."""
        if certificate is None:
            return ANONYMOUS
        return self._rules.mapping.name(subject_of(certificate))
