"""`weir healthcheck`: asks a running Weir whether its process is well, for a container's health check.

An engine starts this command twice a minute. So it reads the few settings that it needs itself: checking all
settings would import most of Weir, and take a second of CPU.
"""

from __future__ import annotations

import ssl
import tomllib
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Final

import click

from weir.cli.exits import CommandError, NothingThereError
from weir.proxy.config.addresses import parse_address
from weir.proxy.config.settings import ConfigError

PATIENCE_S: Final = 4.0
_ANY_HOST: Final = ("", "0.0.0.0", "::")


@click.command()
@click.option(
    "--config", "config_file", metavar="FILE", type=click.Path(path_type=Path), envvar="WEIR_CONFIG"
)
@click.option(
    "--admin", metavar="HOST:PORT", envvar="WEIR_ADMIN", help="The admin endpoint of this host's Weir."
)
@click.option(
    "--admin-tls-cert",
    metavar="FILE",
    envvar="WEIR_ADMIN_TLS_CERT",
    help="Use TLS, and require this certificate of the endpoint, whatever names it has.",
)
def healthcheck(config_file: Path | None, admin: str | None, admin_tls_cert: str | None) -> None:
    """Ask /healthz of the Weir with these settings, on this host.

    The settings are those of `weir run`: options, the same variables, the configuration file. Exit codes: 0
    healthy; 1 no healthy answer; 2 no such endpoint is configured.
    """
    in_file = {} if config_file is None else _read(config_file)
    address = admin or str(in_file.get("admin", ""))
    if not address:
        raise CommandError("which Weir? set WEIR_ADMIN, or admin in the file of WEIR_CONFIG")
    written = str(in_file.get("admin_tls_cert", ""))
    beside = "" if config_file is None or not written else str(config_file.parent / chain_of(written))
    try:
        host, port = parse_address(address, "admin", host_needed=False)
    except ConfigError as error:
        raise CommandError(str(error)) from None
    _ask("localhost" if host in _ANY_HOST else host, port, chain_of(admin_tls_cert or "") or beside)


def chain_of(files: str) -> str:
    """Return the certificate chain's path in a value of admin_tls_cert, CERTIFICATE[,KEY]."""
    return files.partition(",")[0].strip()


def _read(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise CommandError(f"{path}: cannot read the configuration: {error}") from None


def _ask(host: str, port: int, cert: str) -> None:
    """Ask for /healthz. Raises NothingThereError if the answer is not 200."""
    connection = HTTPConnection(host, port, timeout=PATIENCE_S)
    try:
        if cert:
            connection = HTTPSConnection(host, port, timeout=PATIENCE_S, context=only_certificate(cert))
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        raise NothingThereError(f"no answer from {host}:{port}: {error}") from None
    finally:
        connection.close()
    if status != 200:
        raise NothingThereError(f"{host}:{port} answers with status {status}")


def only_certificate(cert: str) -> ssl.SSLContext:
    """Return a context that trusts the certificate in this file and no other. The host's name need not be
    in the certificate, which is for those who ask from elsewhere.
    """
    context = ssl.create_default_context(cafile=cert)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return context
