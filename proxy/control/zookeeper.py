"""Connections to a running ZooKeeper, and its znodes, many read at a time. Nothing is changed there.

kazoo, the client library, is an optional dependency, imported at the first connection. Its functions block,
so callers on Trio's thread run them in threads.
"""

from __future__ import annotations

import logging
import socket
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from weir.quotas.table.zookeeper_layout import CONFIG

if TYPE_CHECKING:
    from kazoo.client import KazooClient

AT_ONCE: Final = 500
"""Maximum number of requests to ZooKeeper that have no response yet."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ZooKeeperError(Exception):
    """Raised if ZooKeeper cannot be read; the text is one line."""


class ZooKeeperAddress(NamedTuple):
    """Address and credentials of ZooKeeper."""

    connect: str
    """Addresses as in Kafka's zookeeper.connect: HOST:PORT[,HOST:PORT...][/CHROOT]."""
    digest: str | None
    """Credentials USER:PASSWORD of the digest scheme; None to connect without credentials."""
    timeout_s: float
    option: str = "--zookeeper"
    """Option or setting that holds `connect`, for error texts."""


class Stat(Protocol):
    """The attributes of a znode's metadata that Weir reads."""

    children_count: int
    cversion: int
    """Number of times that a child was created or deleted."""


class _Answer(Protocol[T_co]):
    """A request to ZooKeeper that is in progress; kazoo returns this object before the response arrives."""

    def get(self, block: bool, timeout: float) -> T_co:
        """Wait for ZooKeeper's response and return the response. Raises the exception with which the request
        failed.
        """


class Znode(NamedTuple):
    """A znode's path below the chroot, its content and its metadata."""

    path: str
    content: bytes | None
    stat: Stat


def require_kazoo(option: str) -> None:
    """Raise ZooKeeperError, which names the option, if kazoo is not installed."""
    if find_spec("kazoo") is None:
        raise ZooKeeperError(
            f"{option} needs kazoo (the extra `zookeeper`): install it beside Weir, pip install kazoo"
        )


class ZooKeeper:
    """A client of ZooKeeper that is connected until `close`. Methods that read raise ZooKeeperError if
    ZooKeeper cannot be read.
    """

    def __init__(self, place: ZooKeeperAddress, denied: Callable[[str], None]) -> None:
        """Connect. `denied` is called with the path of each znode that Weir may not read; such znodes are
        skipped. Raises ZooKeeperError.
        """
        require_kazoo(place.option)
        from kazoo.exceptions import NoAuthError, NoNodeError

        self._no_node: type[Exception] = NoNodeError
        self._no_auth: type[Exception] = NoAuthError
        self._place = place
        self._denied = denied
        self._client = _new_client(place)
        try:
            with self._errors(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about a missing chroot: see `check`
                self._client.start(timeout=place.timeout_s)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the connection."""
        self._client.stop()
        self._client.close()

    def check(self) -> None:
        """Raise ZooKeeperError if ZooKeeper has no nodes of Kafka below the chroot."""
        if self.stat(CONFIG) is None:
            raise ZooKeeperError(
                f"{self._place.connect}: has no {CONFIG}: give the chroot of Kafka's zookeeper.connect, "
                "as HOST:PORT/CHROOT"
            )

    def stat(self, path: str) -> Stat | None:
        """Return the metadata of a znode; None if ZooKeeper lacks the znode."""
        with self._errors():
            exists: Callable[[str], _Answer[Stat | None]] = self._client.exists_async
            return exists(path).get(True, self._place.timeout_s)

    def contents(self, paths: Sequence[str]) -> Iterator[Znode]:
        """Yield each of these znodes, except those that are missing or that Weir may not read."""
        get: Callable[[str], _Answer[tuple[bytes | None, Stat]]] = self._client.get_async
        for path, (content, stat) in self._ask(get, paths):
            yield Znode(path, content, stat)

    def children(self, containers: Sequence[str]) -> Iterator[list[str]]:
        """Yield one list per znode with the paths of its children, except for znodes that are missing or
        that Weir may not read.
        """
        get: Callable[[str], _Answer[list[str]]] = self._client.get_children_async
        for path, names in self._ask(get, containers):
            yield [f"{path}/{name}" for name in sorted(names)]

    def _ask(self, question: Callable[[str], _Answer[T]], paths: Sequence[str]) -> Iterator[tuple[str, T]]:
        """Send the request for each path; yield each path with its response, except for nodes that are
        missing or that Weir may not read.
        """
        for start in range(0, len(paths), AT_ONCE):
            with self._errors():
                asked = [(path, question(path)) for path in paths[start : start + AT_ONCE]]
                answers = [found for path, answer in asked if (found := self._found(path, answer))]
            yield from answers

    def _found(self, path: str, answer: _Answer[T]) -> tuple[str, T] | None:
        try:
            return path, answer.get(True, self._place.timeout_s)
        except self._no_node:
            return None
        except self._no_auth:
            self._denied(path)
            return None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn kazoo's exceptions in the block into ZooKeeperError."""
        from kazoo.exceptions import KazooException

        place = self._place
        try:
            yield
        except self._client.handler.timeout_exception:
            raise ZooKeeperError(f"{place.connect}: no answer within {place.timeout_s:g} s") from None
        except KazooException as error:
            raise ZooKeeperError(
                f"{place.connect}: {type(error).__name__} while reading; try again"
            ) from None


def check_address(place: ZooKeeperAddress) -> None:
    """Raise ZooKeeperError if kazoo is not installed, or if `connect` has another form."""
    require_kazoo(place.option)
    _hosts(place)


def _hosts(place: ZooKeeperAddress) -> list[tuple[str, int]]:
    from kazoo.exceptions import ConfigurationError
    from kazoo.hosts import collect_hosts

    try:
        hosts: list[tuple[str, int]] = collect_hosts(place.connect)[0]
    except (ValueError, ConfigurationError):
        hosts = []
    if not hosts or not all(host for host, _port in hosts):
        raise ZooKeeperError(f"{place.option} is {place.connect!r}, must be HOST:PORT[/CHROOT]")
    return hosts


def _new_client(place: ZooKeeperAddress) -> KazooClient:
    """Return a client that is not connected. Raises ZooKeeperError if no host accepts a connection."""
    from kazoo.client import KazooClient
    from kazoo.exceptions import ConfigurationError

    hosts = _hosts(place)
    try:
        client = KazooClient(
            hosts=place.connect,
            timeout=place.timeout_s,
            auth_data=[("digest", place.digest)] if place.digest is not None else None,
            logger=_silence(),
        )
    except (ValueError, ConfigurationError):
        raise ZooKeeperError(f"{place.option} is {place.connect!r}, must be HOST:PORT[/CHROOT]") from None
    _check_open(place, hosts)
    return client


def _check_open(place: ZooKeeperAddress, hosts: Iterable[tuple[str, int]]) -> None:
    """Raise ZooKeeperError if none of the hosts accepts a connection. kazoo, the client library, would try
    again until its timeout, and then not tell the reason.
    """
    failures = []
    for host, port in hosts:
        try:
            socket.create_connection((host, port), place.timeout_s).close()
        except TimeoutError:
            failures.append(f"no answer within {place.timeout_s:g} s")
        except OSError as error:
            failures.append((error.strerror or str(error)).lower())
        else:
            return
    raise ZooKeeperError(f"{place.connect}: {', '.join(dict.fromkeys(failures))}: check {place.option}")


def _silence() -> logging.Logger:
    """Return a logger for kazoo that logs nothing: at debug level kazoo would log the nodes' content and the
    password.
    """
    logger = logging.getLogger("kazoo")
    logger.disabled = True
    return logger
