"""SSL contexts like a broker's: TLS 1.2 or later, every certificate of a CA file is a trust anchor."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

from proxy.config.settings import ConfigError
from proxy.net.tls import problems

if TYPE_CHECKING:
    from collections.abc import Callable

_SERVER_NAME: Final = "weir_server_name"
"""The attribute of an SSLSocket that holds the server name."""


class Pair(NamedTuple):
    """A certificate chain and its private key, both PEM; they may be one file."""

    cert: Path
    key: Path
    name: str
    """The setting: tls_cert or upstream_cert."""


def server_context(
    pair: Pair, client_auth: ssl.VerifyMode, client_ca: Path | None, *, by_name: bool = False
) -> ssl.SSLContext:
    """Make a listener's context; `by_name`: `server_name_of` works. Raises ConfigError."""
    context = _plain(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    _show(context, pair)
    if client_ca is not None:
        _trust(context, client_ca, "tls_client_ca")
    context.verify_mode = client_auth
    if by_name:
        context.sni_callback = _note_server_name
        _hush_server_names()
    return context


def client_context(ca: Path | None, pair: Pair | None, *, verify_host: bool) -> ssl.SSLContext:
    """Make the context for connections to brokers; without `ca`, the system's authorities are trusted. Raises
    ConfigError.
    """
    context = _plain(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context.check_hostname = verify_host
    if ca is not None:
        _trust(context, ca, "upstream_ca")
    else:
        context.load_default_certs()
    if pair is not None:
        _show(context, pair)
    return context


def server_name_of(sock: ssl.SSLSocket) -> str | None:
    """Return the server name (SNI) that the client has sent."""
    name: str | None = getattr(sock, _SERVER_NAME, None)
    return name


def _note_server_name(
    sock: ssl.SSLSocket | ssl.SSLObject, name: str | None, _context: ssl.SSLContext
) -> None:
    """Runs during the handshake, on its thread."""
    setattr(sock, _SERVER_NAME, name)


def _hush_server_names() -> None:
    """Print nothing about server names that are not ASCII.

    Python decodes them before any code of Weir's runs, ends the handshake if it cannot (which is counted),
    and prints a traceback each time: clients could fill the log.
    """
    if not isinstance(sys.unraisablehook, _HushedHook):
        sys.unraisablehook = _HushedHook(sys.unraisablehook)


class _HushedHook:
    """An unraisable hook that ignores these errors and forwards all others."""

    def __init__(self, others: Callable[[sys.UnraisableHookArgs], object]) -> None:
        self._others = others

    def __call__(self, unraisable: sys.UnraisableHookArgs, /) -> object:
        is_server_name = isinstance(unraisable.object, bytes) and unraisable.exc_type is UnicodeDecodeError
        return None if is_server_name else self._others(unraisable)


def _plain(context: ssl.SSLContext) -> ssl.SSLContext:
    """Disable renegotiation: reads would have to wait for writes. TLS 1.3 lacks it, Kafka does not use it."""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as with a Java truststore
    return context


def _show(context: ssl.SSLContext, pair: Pair) -> None:
    try:
        context.load_cert_chain(pair.cert, pair.key, password=_no_password)
    except (OSError, ValueError) as error:
        if pair.cert != pair.key:
            _refuse(pair.name, f"{pair.cert} with {pair.key}", error)
        if isinstance(error, ssl.SSLError) and not _holds_key(pair.cert):
            error = ValueError(f"it holds no private key: set {pair.name.removesuffix('cert')}key, or add it")
        _refuse(pair.name, str(pair.cert), error)


def _holds_key(path: Path) -> bool:
    try:
        return b"PRIVATE KEY-----" in path.read_bytes()
    except OSError:  # just being replaced: the next look shows it
        return True


def _no_password() -> NoReturn:
    raise ValueError("the key is encrypted: store it without a password, readable by Weir alone")


def _trust(context: ssl.SSLContext, path: Path, name: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        _refuse(name, str(path), error)


def _refuse(name: str, files: str, error: Exception) -> NoReturn:
    if isinstance(error, ssl.SSLError):
        reason = problems.of_files(error)
    elif isinstance(error, OSError):
        reason = (error.strerror or str(error)).lower()
    else:
        reason = str(error)
    raise ConfigError(f"{name} {files} cannot be used: {reason}") from None
