"""Refusals: why a client cannot be served, and how long Weir holds its connection."""

from __future__ import annotations

import errno
import os
from typing import Final

from weir.proxy.addresses import Address
from weir.proxy.close_reasons import BY_PEERS, CloseReason
from weir.proxy.net.own_listeners import OwnAddressError
from weir.proxy.net.tls.handshakes import BrokerTlsError, HandshakeRefusedError
from weir.proxy.server.acceptor import OVERLOAD

HOLD_S: Final = 0.7
"""Time (s) for which a refused client's connection is kept open: about as long as clients pause after several
failures.
"""
NO_RESOURCES: Final = OVERLOAD | {errno.EADDRNOTAVAIL}
"""Values of errno of connect() when descriptors, memory or local ports have run out."""


class RefusalError(Exception):
    """Error: the client cannot be served. It has the close reason for the client."""

    def __init__(self, reason: CloseReason, detail: str, hold_s: float | None = None) -> None:
        super().__init__(detail)
        self.reason = reason
        self.hold_s = HOLD_S if hold_s is None else hold_s


def refused_by_tls(error: HandshakeRefusedError) -> RefusalError:
    """Return the refusal of a client whose TLS handshake has failed."""
    return RefusalError(error.reason, str(error), 0 if error.reason in BY_PEERS else None)


def refused_by_broker(address: Address, error: OSError) -> RefusalError:
    """Return the refusal of a client whose broker could not be connected."""
    system = (error.errno or 0) > 0  # if True, str(error) repeats the address
    said = os.strerror(error.errno or 0).lower() if system else error.strerror or error
    detail = f"broker {address}: {said}"
    if isinstance(error, BrokerTlsError):
        return RefusalError(CloseReason.BROKER_HANDSHAKE_FAILED, detail)
    if isinstance(error, OwnAddressError):
        return misdirected(address, str(error.strerror))
    if error.errno in NO_RESOURCES:
        return RefusalError(
            CloseReason.OUT_OF_RESOURCES, f"{detail}: raise the limit of open files (ulimit -n)"
        )
    return RefusalError(CloseReason.BROKER_UNREACHABLE, detail)


def misdirected(address: Address, reason: str) -> RefusalError:
    """Return the refusal of a client whose broker's address leads to no broker."""
    detail = f"broker {address}: {reason}: correct its advertised.listeners, or upstream"
    return RefusalError(CloseReason.BROKER_MISDIRECTED, detail)
