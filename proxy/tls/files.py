"""A context made of files, and made anew when they change.

The files are looked at once a second, not watched: certificates are replaced by links being swapped (at any
level of the path, as Kubernetes does), and by programs that write the certificate first and its key later. So
a change counts when the files have been the same for two looks. Files that cannot be used leave the old
context in force.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import structlog

from proxy.config_error import ConfigError

log = structlog.get_logger("weir.tls")

LOOK_S: Final = 1.0

Stamp: TypeAlias = tuple[int, int, int] | None
"""Time of modification, size, inode; None if there is no such file."""


class ContextOfFiles:
    """The present context; used on one thread."""

    def __init__(
        self,
        name: str,
        paths: Sequence[Path],
        make: Callable[[], ssl.SSLContext],
        cert: Path | None = None,
    ) -> None:
        """`make` reads the files of these paths, and raises ConfigError; `name` is for the log, `cert` the
        one of them that will expire.
        """
        self.name = name
        self._cert = cert
        self._paths = tuple(paths)
        self._make = make
        self._context: ssl.SSLContext | None = None
        self._in_force: tuple[Stamp, ...] = ()
        self._seen: tuple[Stamp, ...] = ()
        self.last_was_good = True
        """False while the files in place cannot be used, and older ones are in force."""
        self.refused = 0
        """How often changed files could not be used."""
        self.expires_s = 0.0
        """When the certificate in force ends, in seconds since 1970; 0 if there is none, or nobody knows."""

    def load(self) -> None:
        """Read the files now. Raises ConfigError."""
        self._seen = self._in_force = self._stamps()  # before they are read
        self._put_in_force(self._make())

    def _put_in_force(self, context: ssl.SSLContext) -> None:
        self._context = context
        self.expires_s = expiry_s(self._cert) if self._cert is not None else 0.0

    @property
    def context(self) -> ssl.SSLContext:
        """The context in force; the files are read when it is first needed. Raises ConfigError."""
        if self._context is None:
            self.load()
        assert self._context is not None
        return self._context

    async def look(self) -> None:
        """Read the files anew if they have changed and are settled."""
        found = self._stamps()
        settled, self._seen = found == self._seen, found
        if not settled or found == self._in_force:
            return
        self._in_force = found
        try:
            self._put_in_force(self._make())
        except ConfigError as error:
            self.refused += 1
            self.last_was_good = False
            log.error(
                "changed TLS files refused, the old ones stay in force", files=self.name, error=str(error)
            )
        else:
            self.last_was_good = True
            log.info("changed TLS files in force for new connections", files=self.name)

    def _stamps(self) -> tuple[Stamp, ...]:
        return tuple(map(_stamp, self._paths))


def _stamp(path: Path) -> Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def expiry_s(path: Path) -> float:
    """Return when the first certificate of a file ends, in seconds since 1970; 0 if that cannot be read."""
    from cryptography import x509  # takes a while to import, and a plain Weir does not need it

    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):  # OpenSSL has taken it: it is of use even so
        return 0.0
    return certificate.not_valid_after_utc.timestamp()
