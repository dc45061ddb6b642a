"""The settings about access to the admin endpoint, checked."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from weir.proxy.config.settings import ConfigError
from weir.proxy.files import read_text
from weir.proxy.net.tls.contexts import ContextOfFiles, server_context
from weir.proxy.net.tls.rules import pair_of

if TYPE_CHECKING:
    from weir.proxy.addresses import Address
    from weir.proxy.config.settings import Settings

TOKEN_CHARS_MIN: Final = 16
TOKEN_BYTES_MAX: Final = 4096


@dataclass(frozen=True, slots=True)
class AdminAccess:
    """The rules of access to the admin endpoint."""

    loopback: bool
    """True if only this machine can connect: reading then needs no token."""
    host: str
    """Host of the setting `admin`."""
    token_file: Path | None
    tls: ContextOfFiles | None
    """Context of the endpoint's TLS; None for plain HTTP."""


def admin_access(settings: Settings, admin: Address | None) -> AdminAccess:
    """Return the rules of access to the endpoint at this address. Raises ConfigError if anybody who reaches
    the address could read.
    """
    host = "" if admin is None else admin.host
    tls = _tls(settings)
    access = AdminAccess(
        loopback=is_loopback(host),
        host=host,
        token_file=Path(settings.admin_token_file) if settings.admin_token_file else None,
        tls=tls,
    )
    if admin is not None and not (access.loopback or access.token_file):
        raise ConfigError(
            f"admin {admin} can be reached from other machines: set admin_token_file, or listen at 127.0.0.1"
        )
    return access


def is_loopback(host: str) -> bool:
    """Return True if `host` is a loopback address or `localhost`.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback(""), is_loopback("weir.example.com")
    (True, True, False, False)
    """
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_token(path: Path) -> str:
    """Return the token in a file. Raises ConfigError, whose text does not quote the content."""
    return read_secret(path, "admin_token_file", "token")


def read_secret(path: Path, setting: str, noun: str) -> str:
    """Return the secret in the file of this setting. Raises ConfigError, whose text calls the content `noun`,
    and does not quote it.
    """
    where = f"{setting} {path}"
    try:
        secret = read_text(path, TOKEN_BYTES_MAX).strip()
    except OSError as error:
        raise ConfigError(f"{where}: cannot read it: {(error.strerror or str(error)).lower()}") from None
    if not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise ConfigError(f"{where}: not one line of ASCII: write the {noun} into it, and nothing else")
    if len(secret) < TOKEN_CHARS_MIN:
        raise ConfigError(f"{where}: shorter than {TOKEN_CHARS_MIN} characters: try openssl rand -hex 32")
    return secret


def _tls(settings: Settings) -> ContextOfFiles | None:
    pair = pair_of(settings.admin_tls_cert, "admin_tls_cert")
    if pair is None:
        return None
    return ContextOfFiles(
        "admin_tls_cert",
        [*dict.fromkeys([pair.cert, pair.key])],
        lambda at: server_context(pair.read_at(at), ssl.CERT_NONE, None),
        pair.cert,
    )
