"""An SSL context made of files, and made again when they change (`proxy.file_watch`).

If changed files cannot be used, the old context stays in force.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog
import trio

from proxy.config.settings import ConfigError
from proxy.file_watch import FileWatch

log = structlog.get_logger("weir.tls")


class _Made(NamedTuple):
    """The result of reading the files."""

    context: ssl.SSLContext
    expires_s: float


class ContextOfFiles:
    """The current context. Used on one thread; changed files are read on another."""

    def __init__(
        self,
        name: str,
        paths: Sequence[Path],
        make: Callable[[], ssl.SSLContext],
        cert: Path | None = None,
    ) -> None:
        """`make` reads the files at these paths, and raises ConfigError; `name` is for the log, `cert` is the
        path of the certificate.
        """
        self.name = name
        self._cert = cert
        self._watch = FileWatch(paths)
        self._make = make
        self._context: ssl.SSLContext | None = None
        self.last_was_good = True
        """False while the current files cannot be used, and older ones are in force."""
        self.refused = 0
        """Number of times that changed files could not be used."""
        self.expires_s = 0.0
        """Unix time (s) at which the certificate in force expires; 0 without a certificate, or if the time is
        unknown.
        """

    def load(self) -> None:
        """Read the files. Raises ConfigError."""
        self._watch.read = self._watch.stamps()
        self._context, self.expires_s = self._made()

    def _made(self) -> _Made:
        """Read the files. Raises ConfigError."""
        return _Made(self._make(), expiry_s(self._cert) if self._cert is not None else 0.0)

    @property
    def context(self) -> ssl.SSLContext:
        """Return the context in force; read the files at the first call. Raises ConfigError."""
        if self._context is None:
            self.load()
        assert self._context is not None
        return self._context

    async def look(self) -> None:
        """Read the files again, in a thread, if they have changed."""
        if not await self._watch.look():
            return
        self._watch.read = await trio.to_thread.run_sync(self._watch.stamps)
        try:
            self._context, self.expires_s = await trio.to_thread.run_sync(self._made)
        except ConfigError as error:
            self.refused += 1
            self.last_was_good = False
            log.error(
                "changed TLS files refused, the old ones stay in force", files=self.name, error=str(error)
            )
        else:
            self.last_was_good = True
            log.info("changed TLS files in force for new connections", files=self.name)


def expiry_s(path: Path) -> float:
    """Return the Unix time (s) at which the first certificate of a file expires; 0 if it cannot be read."""
    from cryptography import x509  # slow to import, and not needed without TLS

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):  # OpenSSL has accepted the file, so it is usable
        return 0.0
    return certificate.not_valid_after_utc.timestamp()
