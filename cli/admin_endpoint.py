"""Send requests to the admin endpoint of a running Weir."""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from typing import Final, TypeVar
from urllib.parse import urlencode

import msgspec

from weir.cli.exits import CommandError
from weir.cli.quotas.show import clean
from weir.proxy.addresses import Address
from weir.proxy.config.config import ConfigError, Settings, parse_address

T = TypeVar("T")

PATIENCE_S: Final = 5.0
"""Timeout (s) for connecting to the admin endpoint, and for each part of its response."""
ANSWER_BYTES_MAX: Final = 8 << 20
_ANY_HOST: Final = ("", "0.0.0.0", "::")
"""Values of a listener's host in the configuration that stand for all addresses of the machine."""


class AdminError(Exception):
    """Raised if a request to the admin endpoint fails; the text is one line."""


def reachable(address: Address) -> Address:
    """Return the address to which a client on this machine connects: the listener's own, or the loopback
    address if the listener accepts connections at any address.
    """
    return address._replace(host="localhost") if address.host in _ANY_HOST else address


def admin_address(option: str | None, settings: Settings) -> Address | None:
    """Return the address that the option `--admin` names, else that of the settings; None if neither names
    one. Raises CommandError if the address is malformed.
    """
    text = settings.admin if option is None else option
    if not text and option is None:
        return None
    try:
        return reachable(parse_address(text, "admin" if option is None else "--admin", host_needed=False))
    except ConfigError as error:
        raise CommandError(clean(error)) from None


def ask(address: Address, path: str, query: Mapping[str, str], kind: type[T]) -> T:
    """Request a page of the admin endpoint; return its JSON, decoded as the type `kind`. Raises AdminError if
    the endpoint cannot be reached, or sends anything but such JSON.
    """
    connection = HTTPConnection(address.host, address.port, timeout=PATIENCE_S)
    try:
        connection.request("GET", f"{path}?{urlencode(query, errors='replace')}")
        answer = connection.getresponse()
        status, body = answer.status, answer.read(ANSWER_BYTES_MAX)
    except TimeoutError:
        raise AdminError(f"no answer from {address} within {PATIENCE_S:g} s") from None
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise AdminError(f"cannot ask {address}: {reason.lower()}") from None
    except HTTPException:
        raise AdminError(f"{address} does not speak HTTP: is it the admin endpoint of Weir?") from None
    finally:
        connection.close()
    if status != 200:
        raise AdminError(f"{address} answers {path} with status {status}: is it Weir, of this release?")
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise AdminError(f"{address} answers {path} as no Weir of this release does") from None
