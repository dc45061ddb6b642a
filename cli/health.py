"""Ask a running Weir whether its process is well: `weir check --running`."""

from __future__ import annotations

from collections.abc import Mapping
from http.client import HTTPException
from pathlib import Path
from typing import Final

from weir.cli.admin_endpoint import access_of, admin_address
from weir.cli.exits import CommandError, NothingThereError
from weir.cli.quotas.show import clean
from weir.proxy.config import config

PATIENCE_S: Final = 4.0
"""Timeout (s) for the answer, below that of the image's health check."""


def check_health(config_file: Path | None, options: Mapping[str, object]) -> None:
    """Ask /healthz of the Weir with these settings, on this host. Raises NothingThereError if the answer is
    not 200, CommandError if no settings name an admin endpoint.
    """
    try:
        settings = config.read(config_file, options).settings
    except config.ConfigError as error:
        raise CommandError(clean(error)) from None
    address = admin_address(None, settings)
    if address is None:
        raise CommandError("which Weir? set WEIR_ADMIN, or admin in the file of WEIR_CONFIG")
    connection = access_of(None, None, settings).connection(address, PATIENCE_S)
    try:
        connection.request("GET", "/healthz")
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        raise NothingThereError(f"no answer from {address}: {error}") from None
    finally:
        connection.close()
    if status != 200:
        raise NothingThereError(f"{address} answers with status {status}")
