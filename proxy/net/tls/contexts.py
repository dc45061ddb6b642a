"""SSL contexts like a broker's: TLS 1.2 or later, every certificate of a CA file is a trust anchor.

Contexts are made of files, and made again when the files change (`proxy.file_watch`). If changed files cannot
be used, the old context stays in force.
"""

from __future__ import annotations

import os
import ssl
import sys
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, TypeAlias

import structlog

from weir.proxy.config.settings import ConfigError
from weir.proxy.file_watch import FileWatch, Stamp, in_thread
from weir.proxy.files import CERTIFICATES_BYTES_MAX, read_bytes
from weir.proxy.net.tls import problems
from weir.proxy.outage import Outage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

log = structlog.get_logger("weir.tls")

_SERVER_NAME: Final = "weir_server_name"
"""Name of the attribute of an SSLSocket in which Weir stores the server name that the client has sent."""


CERTIFICATE: Final = b"CERTIFICATE-----"
PRIVATE_KEY: Final = b"PRIVATE KEY-----"


At: TypeAlias = "Callable[[Path], Path]"
"""Function that returns the path at which to read the content of a configured path."""


class KeyPair(NamedTuple):
    """A certificate chain and its private key, both PEM; they may be one file."""

    cert: Path
    key: Path
    name: str
    """Name of the setting that has the certificate's path: tls_cert or upstream_cert."""

    def read_at(self, at: At) -> KeyPair:
        """Return this pair with the paths at which to read it."""
        return KeyPair(at(self.cert), at(self.key), self.name)


class FileContents(NamedTuple):
    """The contents of the files of a context in force, with which another process makes the same context."""

    stamps: tuple[Stamp, ...]
    contents: tuple[bytes, ...]


class _Made(NamedTuple):
    """An SSL context made of files, and the Unix time (s) at which its certificate expires."""

    context: ssl.SSLContext
    expires_s: float
    contents: tuple[bytes, ...] | None
    """Contents of the files; None if they are not kept, or have changed meanwhile."""


class ContextOfFiles:
    """An SSL context made of files, and made again when the files change. Used on one thread; changed files
    are read on another.
    """

    def __init__(
        self,
        name: str,
        paths: Sequence[Path],
        make: Callable[[At], ssl.SSLContext],
        cert: Path | None = None,
    ) -> None:
        """Begin without a context. `make` reads the files and returns a context, or raises ConfigError; its
        argument tells where to read each of `paths`. `name` is for the log, `cert` is the path of the
        certificate.
        """
        self.name = name
        self._cert = cert
        self._paths = tuple(paths)
        self._watch = FileWatch(paths)
        self._make = make
        self._context: ssl.SSLContext | None = None
        self.keeps_contents = False
        """True to keep the files' contents, private keys among them, for other processes (`in_force`). Set it
        before `load`.
        """
        self._in_force: FileContents | None = None
        self.outage: Final = Outage(
            log, "changed TLS files refused, the old ones stay in force", "TLS files can be used again"
        )
        self.on_change: list[Callable[[], None]] = []
        """Functions to call after each change of the context."""
        self.refused = 0
        """Number of times that changed files could not be used."""
        self.expires_s = 0.0
        """Unix time (s) at which the certificate in force expires; 0 without a certificate, or if the time is
        unknown.
        """

    def load(self) -> None:
        """Make the context from the files' present content. Raises ConfigError."""
        self._watch.read = self._watch.stamps()
        self._use(self._made())

    @property
    def in_force(self) -> FileContents | None:
        """The contents of the files in force; None unless `keeps_contents` is set, before the first `load`,
        and if the files have changed during the latest one.
        """
        return self._in_force

    def adopt(self, files: FileContents | None) -> None:
        """Make the context from these contents, which another process has in force, so that files that were
        broken since do not matter; from the files' present content if `files` is None, or if this system can
        read no content from memory. Raises ConfigError.
        """
        if files is not None:
            self._watch.read = files.stamps
            with suppress(OSError, ConfigError):  # the contents are usable: this is about /proc
                self._use(self._made_of(files.contents))
                return
        self.load()

    def _made_of(self, contents: Sequence[bytes]) -> _Made:
        """Return a context made of these contents of the files. Raises OSError or ConfigError."""
        with ExitStack() as stack:
            copies = {
                path: stack.enter_context(_in_memory(content))
                for path, content in zip(self._paths, contents, strict=True)
            }
            return self._made(copies.__getitem__)

    def _made(self, at: At = lambda path: path) -> _Made:
        """Return a context made of the files' present content, and the time at which its certificate expires.
        Raises ConfigError.
        """
        before = self._contents(at) if self.keeps_contents else None
        context = self._make(at)
        expires_s = expiry_s(at(self._cert)) if self._cert is not None else 0.0
        unchanged = before is not None and before == self._contents(at)
        return _Made(context, expires_s, before if unchanged else None)

    def _contents(self, at: At) -> tuple[bytes, ...] | None:
        """Return the files' present contents; None if a file cannot be read."""
        try:
            return tuple(read_bytes(at(path), CERTIFICATES_BYTES_MAX) for path in self._paths)
        except OSError:
            return None

    def _use(self, made: _Made) -> None:
        self._context, self.expires_s = made.context, made.expires_s
        self._in_force = None if made.contents is None else FileContents(self._watch.read, made.contents)

    @property
    def context(self) -> ssl.SSLContext:
        """Return the context in force; read the files at the first call. Raises ConfigError."""
        if self._context is None:
            self.load()
        assert self._context is not None
        return self._context

    async def look(self) -> None:
        """Make the context again, in a thread, if the files have changed. If the changed files cannot be
        used, keep the old context and log the error.
        """
        if not await self._watch.look():
            return
        self._watch.read = await in_thread(self._watch.stamps)
        try:
            self._use(await in_thread(self._made))
        except ConfigError as error:
            self.refused += 1
            self.outage.failed(files=self.name, error=str(error))
        else:
            self.outage.over(files=self.name)
            log.info("changed TLS files in force for new connections", files=self.name)
            for call in self.on_change:
                call()

    async def follow(self, files: FileContents | None) -> None:
        """Make the context again as `adopt` does, in a thread. Raises ConfigError."""
        await in_thread(partial(self.adopt, files))


@contextmanager
def _in_memory(content: bytes) -> Iterator[Path]:
    """Give a path that has this content within the block: OpenSSL reads private keys from paths only, and no
    copy of a key belongs on a disk.
    """
    fd = os.memfd_create("weir-tls")
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(content)
        yield Path(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def expiry_s(path: Path) -> float:
    """Return the Unix time (s) at which the first certificate of a file expires; 0 if it cannot be read."""
    from cryptography import x509  # slow to import, and not needed without TLS

    try:
        certificate = x509.load_pem_x509_certificate(read_bytes(path, CERTIFICATES_BYTES_MAX))
    except (OSError, ValueError):  # OpenSSL has accepted the file, so it is usable
        return 0.0
    return certificate.not_valid_after_utc.timestamp()


def server_context(
    pair: KeyPair, client_auth: ssl.VerifyMode, client_ca: Path | None, *, by_name: bool = False
) -> ssl.SSLContext:
    """Return the SSL context of a listener. With `by_name`, the context stores the server name that each
    client sends, for `server_name_of`. Raises ConfigError.
    """
    context = _plain(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    _show(context, pair)
    if client_ca is not None:
        _trust(context, client_ca, f"{pair.name.removesuffix('cert')}client_ca")
    context.verify_mode = client_auth
    if by_name:
        context.sni_callback = _note_server_name
        _hush_server_names()
    return context


def client_context(ca: Path | None, pair: KeyPair | None, *, verify_host: bool) -> ssl.SSLContext:
    """Return the SSL context for connections to brokers. Without `ca`, the system's authorities are trusted.
    Raises ConfigError.
    """
    context = _plain(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    context.check_hostname = verify_host
    if ca is not None:
        _trust(context, ca, "upstream_tls")
    else:
        context.load_default_certs()
    if pair is not None:
        _show(context, pair)
    return context


def server_name_of(sock: ssl.SSLSocket) -> str | None:
    """Return the server name (SNI) that the client has sent; None if the client has sent none."""
    name: str | None = getattr(sock, _SERVER_NAME, None)
    return name


def _note_server_name(
    sock: ssl.SSLSocket | ssl.SSLObject, name: str | None, _context: ssl.SSLContext
) -> None:
    """Store the server name that a client has sent. OpenSSL calls this during the handshake, on the
    handshake's thread.
    """
    setattr(sock, _SERVER_NAME, name)


def _hush_server_names() -> None:
    """Suppress the tracebacks that Python prints about server names that are not ASCII.

    Python decodes a server name before any code of Weir's runs. If decoding fails, Python ends the handshake,
    which is counted, and prints a traceback: clients could fill the log.
    """
    if not isinstance(sys.unraisablehook, _HushedHook):
        sys.unraisablehook = _HushedHook(sys.unraisablehook)


class _HushedHook:
    """A replacement of `sys.unraisablehook` that ignores server names that cannot be decoded, and passes all
    other errors to the hook before it.
    """

    def __init__(self, others: Callable[[sys.UnraisableHookArgs], object]) -> None:
        self._others = others

    def __call__(self, unraisable: sys.UnraisableHookArgs, /) -> object:
        is_server_name = isinstance(unraisable.object, bytes) and unraisable.exc_type is UnicodeDecodeError
        return None if is_server_name else self._others(unraisable)


def _plain(context: ssl.SSLContext) -> ssl.SSLContext:
    """Set the options that all contexts share and return the context: TLS 1.2 or later, no compression, no
    renegotiation, every certificate of a CA file a trust anchor. Renegotiation would make reads wait for
    writes; TLS 1.3 lacks it, and Kafka does not use it.
    """
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as with a Java truststore
    return context


def _show(context: ssl.SSLContext, pair: KeyPair) -> None:
    content = _read(pair.cert, pair.name)
    key = content if pair.cert == pair.key else _read(pair.key, pair.name)
    try:
        context.load_cert_chain(pair.cert, pair.key, password=_no_password)
    except (OSError, ValueError) as error:
        if isinstance(error, ssl.SSLError):
            if CERTIFICATE not in content:
                _refuse(pair.name, str(pair.cert), ValueError("it holds no certificate (PEM)"))
            if PRIVATE_KEY not in key and pair.cert != pair.key:
                _refuse(pair.name, str(pair.key), ValueError("it holds no private key (PEM)"))
            if PRIVATE_KEY not in key:
                error = ValueError(f"it holds no private key: add it, or set {pair.name} to CERTIFICATE,KEY")
        files = f"{pair.cert} with {pair.key}" if pair.cert != pair.key else str(pair.cert)
        _refuse(pair.name, files, error)


def _read(path: Path, name: str) -> bytes:
    """Return the content of a file; OpenSSL does not tell which of two files it cannot read. Raises
    ConfigError, whose text names the setting `name`.
    """
    try:
        return read_bytes(path, CERTIFICATES_BYTES_MAX)
    except OSError as error:
        _refuse(name, str(path), error)


def _no_password() -> NoReturn:
    raise ValueError("the key is encrypted: store it without a password, readable by Weir alone")


def _trust(context: ssl.SSLContext, path: Path, name: str) -> None:
    _read(path, name)  # OpenSSL would wait for ever at a named pipe
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
