"""Read the znodes of a running ZooKeeper, for `weir quotas import zookeeper --zookeeper`, without changing
them.
"""

from __future__ import annotations

import logging
import socket
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from weir.quotas.table.zookeeper_layout import CLIENTS, CONFIG, IPS, OF_A_USER, USERS, ZooKeeperQuotas

if TYPE_CHECKING:
    from kazoo.client import KazooClient

AT_ONCE: Final = 500
"""Maximum number of requests in progress at a time."""


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


class _Stat(Protocol):
    """The only attribute of a znode's metadata that Weir reads: the number of its children."""

    children_count: int


class _Answer(Protocol[T_co]):
    """A request to ZooKeeper that is in progress; kazoo returns this object before the response arrives."""

    def get(self, block: bool, timeout: float) -> T_co:
        """Wait for ZooKeeper's response and return the response. Raises the exception with which the request
        failed.
        """


def read(place: ZooKeeperAddress, quotas: ZooKeeperQuotas, say: Callable[[str], None]) -> None:
    """Read each znode that holds quotas, and add its content to `quotas`; skip znodes that Weir may not read.
    `say` is called with progress. Raises ZooKeeperError if ZooKeeper cannot be read.
    """
    with _connected(place) as client:
        reader = _Reader(client, place, quotas, say)
        reader.check()
        users = reader.nodes(USERS)
        reader.nodes(CLIENTS)
        reader.nodes(IPS)
        for client_ids in reader.children([f"{user}/{OF_A_USER}" for user in users]):
            reader.contents(client_ids)


@contextmanager
def _connected(place: ZooKeeperAddress) -> Iterator[KazooClient]:
    try:
        from kazoo.client import KazooClient
        from kazoo.exceptions import ConfigurationError, KazooException
        from kazoo.hosts import collect_hosts
    except ImportError:
        raise ZooKeeperError("--zookeeper needs kazoo: install it beside Weir, pip install kazoo") from None
    try:
        client = KazooClient(
            hosts=place.connect,
            timeout=place.timeout_s,
            auth_data=[("digest", place.digest)] if place.digest is not None else None,
            logger=_silence(),
        )
    except (ValueError, ConfigurationError):
        raise ZooKeeperError(f"--zookeeper is {place.connect!r}, must be HOST:PORT[/CHROOT]") from None
    _check_open(place, collect_hosts(place.connect)[0])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a missing chroot: see `check`
            client.start(timeout=place.timeout_s)
        yield client
    except client.handler.timeout_exception:
        raise ZooKeeperError(f"{place.connect}: no answer within {place.timeout_s:g} s") from None
    except KazooException as error:
        raise ZooKeeperError(f"{place.connect}: {type(error).__name__} while reading; try again") from None
    finally:
        client.stop()
        client.close()


def _check_open(place: ZooKeeperAddress, hosts: Iterable[tuple[str, int]]) -> None:
    """Raise ZooKeeperError if none of the hosts accepts a connection. kazoo would try until the time is over,
    and not tell why.
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
    raise ZooKeeperError(f"{place.connect}: {', '.join(dict.fromkeys(failures))}: check --zookeeper")


def _silence() -> logging.Logger:
    """Return a logger for kazoo that logs nothing: at debug level kazoo would log the nodes' content and the
    password.
    """
    logger = logging.getLogger("kazoo")
    logger.disabled = True
    return logger


class _Reader:
    """Reads many znodes of ZooKeeper at a time."""

    def __init__(
        self,
        client: KazooClient,
        place: ZooKeeperAddress,
        quotas: ZooKeeperQuotas,
        say: Callable[[str], None],
    ) -> None:
        from kazoo.exceptions import NoAuthError, NoNodeError

        self._no_node: type[Exception] = NoNodeError
        self._no_auth: type[Exception] = NoAuthError
        self._client = client
        self._place = place
        self._quotas = quotas
        self._say = say
        self._who = "this user" if place.digest is not None else "those without --zookeeper-digest"

    def check(self) -> None:
        """Raise ZooKeeperError if ZooKeeper has no nodes of Kafka below the chroot."""
        if self._client.exists_async(CONFIG).get(True, self._place.timeout_s) is None:
            raise ZooKeeperError(
                f"{self._place.connect}: has no {CONFIG}: give the chroot of Kafka's zookeeper.connect, "
                "as HOST:PORT/CHROOT"
            )

    def nodes(self, container: str) -> list[str]:
        """Read each child of the znode `container`; return the paths of the children that have children of
        their own.
        """
        (paths,) = self.children([container])
        return self.contents(paths)

    def contents(self, paths: Sequence[str]) -> list[str]:
        """Read the content of these znodes; return the paths of the znodes that have children."""
        parents: list[str] = []
        get: Callable[[str], _Answer[tuple[bytes | None, _Stat]]] = self._client.get_async
        for path, (content, stat) in self._ask(get, paths):
            self._quotas.read(path, content)
            if stat.children_count:
                parents.append(path)
        return parents

    def children(self, containers: Sequence[str]) -> list[list[str]]:
        """Return one list per znode with the paths of its children; an empty list if ZooKeeper lacks the
        znode.
        """
        get: Callable[[str], _Answer[list[str]]] = self._client.get_children_async
        answers = self._ask(get, containers)
        return [[f"{path}/{name}" for name in sorted(names)] for path, names in answers] or [[]]

    def _ask(self, question: Callable[[str], _Answer[T]], paths: Sequence[str]) -> Iterator[tuple[str, T]]:
        """Send the request for each path; yield each path with its response, except for nodes that are
        missing or that Weir may not read.
        """
        for start in range(0, len(paths), AT_ONCE):
            asked = [(path, question(path)) for path in paths[start : start + AT_ONCE]]
            for path, answer in asked:
                try:
                    yield path, answer.get(True, self._place.timeout_s)
                except self._no_node:
                    continue
                except self._no_auth:
                    self._quotas.skip(path, None, f"ZooKeeper does not let {self._who} read it")
            self._say(f"{self._quotas.nodes} nodes read")
