"""Send requests to the admin endpoint of a running Weir."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlencode

import click
import msgspec

from weir.cli.exits import CommandError
from weir.cli.quotas.show import clean
from weir.cli.settings.options import ENVIRONMENT_PREFIX, F
from weir.proxy.addresses import Address
from weir.proxy.config import config
from weir.proxy.config.admin_access import read_token
from weir.proxy.config.config import ConfigError, Settings, parse_address
from weir.proxy.control.snapshots.records import ErrorDetails
from weir.proxy.files import CERTIFICATES_BYTES_MAX, read_bytes

T = TypeVar("T")

PATIENCE_S: Final = 5.0
"""Timeout (s) for connecting to the admin endpoint, and for each part of its response."""
CHANGE_S: Final = 30.0
"""The same for a change: the store may take 20 s."""
ANSWER_BYTES_MAX: Final = 8 << 20
HTTPS: Final = "https://"
"""Beginning of `--admin` that switches TLS on."""
_ANY_HOST: Final = ("", "0.0.0.0", "::")
"""Values of a listener's host in the configuration that stand for all addresses of the machine."""


class AdminError(Exception):
    """Raised if a request to the admin endpoint fails; the text is one line."""


@dataclass(frozen=True)
class EndpointAccess:
    """The means by which a client gets access to the admin endpoint."""

    token_file: Path | None = None
    """File with the bearer token, read for every request, because tokens change; None for no token."""
    tls: ssl.SSLContext | None = None
    """Context of TLS; None for plain HTTP."""

    def headers(self) -> dict[str, str]:
        """Return the headers of a request. Raises AdminError if the token cannot be read."""
        if self.token_file is None:
            return {}
        try:
            return {"Authorization": f"Bearer {read_token(self.token_file)}"}
        except ConfigError as error:
            raise AdminError(str(error)) from None

    def connection(self, address: Address, timeout_s: float) -> HTTPConnection:
        """Return a connection to this address, which is not open yet."""
        if self.tls is None:
            return HTTPConnection(address.host, address.port, timeout=timeout_s)
        return HTTPSConnection(address.host, address.port, timeout=timeout_s, context=self.tls)


PLAIN: Final = EndpointAccess()


def access_options(command: F) -> F:
    """Add the option `--admin-token-file` to a command, which gets it as `token_file`, a path or None."""
    return click.option(
        "--admin-token-file",
        "token_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        envvar=f"{ENVIRONMENT_PREFIX}ADMIN_TOKEN_FILE",
        show_envvar=True,
        help="File with the token of the admin endpoint. [default: that of --config]",
    )(command)


def access_of(admin: str | None, token_file: Path | None, settings: Settings) -> EndpointAccess:
    """Return the access that the options `--admin` and `--admin-token-file` give, else that of the settings.
    With https:// in `--admin`, the system's authorities are trusted, or those in the file of the variable
    SSL_CERT_FILE (OpenSSL's); with a certificate in the settings, that one. Raises CommandError if it cannot
    be read.
    """
    if token_file is None and settings.admin_token_file:
        token_file = Path(settings.admin_token_file)
    if admin is not None and admin.startswith(HTTPS):
        return EndpointAccess(token_file, ssl.create_default_context())
    chain = settings.admin_tls_cert.partition(",")[0].strip()  # a private key may follow
    if not chain:
        return EndpointAccess(token_file)
    try:
        read_bytes(Path(chain), CERTIFICATES_BYTES_MAX)  # OpenSSL waits at a named pipe
        return EndpointAccess(token_file, only_certificate(chain))
    except OSError as error:  # SSLError is one
        reason = (error.strerror or str(error)).lower()
        raise CommandError(clean(f"admin_tls_cert {chain}: cannot read it: {reason}")) from None


def only_certificate(cert: str) -> ssl.SSLContext:
    """Return a context that trusts the certificate in this file and no other. The host's name need not be
    in the certificate, which is for those who ask from elsewhere.
    """
    context = ssl.create_default_context(cafile=cert)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context


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
        name = "admin" if option is None else "--admin"
        return reachable(parse_address(text.removeprefix(HTTPS), name, host_needed=False))
    except ConfigError as error:
        raise CommandError(clean(error)) from None


def needed_endpoint(
    admin: str | None, token_file: Path | None, settings: Settings
) -> tuple[Address, EndpointAccess]:
    """Return the address and the access that the options `--admin` and `--admin-token-file` give, else
    those of the settings. Raises UsageError if neither names an address; CommandError as `admin_address` and
    `access_of` do.
    """
    address = admin_address(admin, settings)
    if address is None:
        raise click.UsageError("which Weir? give --admin HOST:PORT, or --config with admin set")
    return address, access_of(admin, token_file, settings)


def settings_of(config_file: Path | None) -> Settings:
    """Return the settings in a configuration file; the defaults without a file. Raises CommandError."""
    try:
        return config.load(config_file, {}).settings if config_file is not None else Settings()
    except ConfigError as error:
        raise CommandError(clean(error)) from None


def ask(
    address: Address,
    path: str,
    query: Mapping[str, str],
    kind: type[T],
    access: EndpointAccess = PLAIN,
    body: bytes | None = None,
) -> T:
    """Request a page of the admin endpoint, with a `body` (JSON) by POST; return its JSON, decoded as the
    type `kind`. Raises AdminError if the endpoint cannot be reached, refuses access, or sends anything but
    such JSON.
    """
    headers, patience_s = access.headers(), PATIENCE_S
    if body is not None:
        headers, patience_s = {**headers, "Content-Type": "application/json"}, CHANGE_S
    connection = access.connection(address, patience_s)
    method, text = "GET" if body is None else "POST", urlencode(query, errors="replace")
    try:
        connection.request(method, f"{path}?{text}", body, headers)
        answer = connection.getresponse()
        status, answered = answer.status, answer.read(ANSWER_BYTES_MAX)
    except TimeoutError:
        raise AdminError(f"no answer from {address} within {patience_s:g} s") from None
    except ConnectionResetError:
        raise AdminError(
            f"{address} closed the connection without an answer: is it a port for Kafka's clients, or does "
            "it want TLS (https:// before the address)?"
        ) from None
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or str(error)
        advice = "; SSL_CERT_FILE can name a file of authorities" if isinstance(error, ssl.SSLError) else ""
        raise AdminError(f"cannot ask {address}: {reason.lower()}{advice}") from None
    except HTTPException:
        raise AdminError(f"{address} does not speak HTTP: is it the admin endpoint of Weir?") from None
    finally:
        connection.close()
    if status == 401:
        raise AdminError(f"{address} needs the right token: name its file in --admin-token-file")
    if status != 200 and body is not None:
        advice = " (here: --admin-token-file)" if status == 403 else ""
        raise AdminError(f"{address} refuses the change: {_detail(answered)}{advice}")
    if status != 200:
        raise AdminError(f"{address} answers {path} with status {status}: {_detail(answered)}")
    try:
        return msgspec.json.decode(answered, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise AdminError(f"{address} answers {path} as no Weir of this release does") from None


def _detail(body: bytes) -> str:
    """Return the explanation in an error (RFC 9457); a question if the error has none."""
    try:
        return msgspec.json.decode(body, type=ErrorDetails).detail
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "is it Weir, of this release?"
