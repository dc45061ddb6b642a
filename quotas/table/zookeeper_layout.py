"""Quotas in ZooKeeper, as brokers up to 3.9 store them (KIP-55, KIP-124, KIP-612).

    /config/users/<user>                        quotas of a user
    /config/users/<user>/clients/<client-id>    quotas of a client-id of that user
    /config/clients/<client-id>                 quotas of a client-id of any user
    /config/ips/<ip>                            quotas of an IP address

Names are percent-encoded (Kafka's `Sanitizer`); `<default>` is the default. A node contains
`{"version": 1, "config": {"producer_byte_rate": "1024"}}`; values are strings.

The same nodes contain users' SCRAM credentials (`SCRAM-SHA-256`, `SCRAM-SHA-512`). Weir counts the
credentials and does not decode them. Messages for the operator contain values of quotas, never of
credentials.
"""

# mypyc: skip, because mypyc drops the options of msgspec's structs, such as kw_only.
from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote_plus

import msgspec

from weir.quotas.table.entities import DEFAULT, Entity, Name
from weir.quotas.table.imported import Imported
from weir.quotas.table.names import canonical_ip, sanitize
from weir.quotas.table.quota_kind import OF_IPS, QuotaKey

if TYPE_CHECKING:
    from collections.abc import Iterable

CONFIG: Final = "/config"
USERS: Final = f"{CONFIG}/users"
CLIENTS: Final = f"{CONFIG}/clients"
IPS: Final = f"{CONFIG}/ips"
OF_A_USER: Final = "clients"
"""Name of the child of a user's node whose children are client-ids of that user."""

Node: TypeAlias = tuple[str, bytes | None]
"""Path of a znode below Kafka's chroot, and the znode's content."""

_QUOTA_KEYS: Final = frozenset(key.value for key in QuotaKey)
_CREDENTIALS: Final = "SCRAM-"
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_ESCAPES: Final = re.compile(r"(?:[^%]|%[0-9A-Fa-f]{2})*")
_SHOWN_MAX: Final = 60


class _NodeError(ValueError):
    """Raised if a node or a value cannot be read. The message is the reason."""


class _Content(msgspec.Struct):
    """JSON content of a znode: its quotas and credentials, whose values are not decoded."""

    config: dict[str, msgspec.Raw] = {}


class ZooKeeperQuotas(Imported):
    """Quotas read from znodes, and the number of nodes and credentials among them."""

    def __init__(self, nodes: Iterable[Node] = ()) -> None:
        super().__init__()
        self.nodes = 0
        """Number of nodes read."""
        self.credentials = 0
        """Number of SCRAM credentials in these nodes."""
        for path, content in nodes:
            self.read(path, content)

    def read(self, path: str, content: bytes | None) -> None:
        """Import the quotas of the node at `path`; record quotas that cannot be imported as skipped."""
        self.nodes += 1
        try:
            entity = entity_at(path)
            config = _config(content)
        except _NodeError as error:
            self.skip(path, None, str(error))
            return
        for key, written in config.items():
            self._read(path, entity, key, written)

    def _read(self, path: str, entity: Entity, key: str, written: msgspec.Raw) -> None:
        if key.upper().startswith(_CREDENTIALS):
            self.credentials += 1
        elif key not in _QUOTA_KEYS:
            self.skip(path, _shown(key), "no quota that Weir knows")
        elif (QuotaKey(key) in OF_IPS) != (entity.ip is not None):
            self.skip(
                path, key, f"no quota of {'an ip' if entity.ip is not None else 'users and client-ids'}"
            )
        else:
            try:
                self.take(path, entity, key, _number(written))
            except _NodeError as error:
                self.skip(path, key, str(error))


def entity_at(path: str) -> Entity:
    """Return the entity whose quotas the node at `path` contains. Raises ValueError if the path is not that
    of a user, client-id or IP address, or if brokers ignore the node.
    """
    match path.split("/"):
        case ["", "config", "users", user]:
            return Entity(user=_user(user))
        case ["", "config", "users", user, "clients", client_id]:
            return Entity(user=_user(user), client_id=_name(client_id))
        case ["", "config", "clients", client_id]:
            return Entity(client_id=_name(client_id))
        case ["", "config", "ips", ip]:
            return Entity(ip=_ip(ip))
        case _:
            raise _NodeError("no node of a user, a client-id or an ip")


def _user(written: str) -> Name:
    """Return the decoded user of a znode's path. Raises _NodeError if the user is not encoded as Kafka
    encodes it: brokers compare encoded users, so they ignore such a node.
    """
    name = _name(written)
    if name is not DEFAULT and sanitize(name) != written:
        raise _NodeError(f"brokers ignore this node: they encode this user as {sanitize(name)}")
    return name


def _ip(written: str) -> Name:
    name = _name(written)
    if name is DEFAULT:
        return name
    try:
        return canonical_ip(name)
    except ValueError:
        raise _NodeError("no IP address: set this quota for the addresses of that host") from None


def _name(written: str) -> Name:
    """Return a name from a znode's path, percent-decoded like by Java's URLDecoder. Raises _NodeError if the
    name cannot be decoded.
    """
    if written == DEFAULT.value:
        return DEFAULT
    if not written:
        raise _NodeError("its name is empty")
    if not _ESCAPES.fullmatch(written):
        raise _NodeError("its name is not percent-encoded: after % come two hexadecimal digits")
    try:
        return unquote_plus(written, errors="strict")
    except UnicodeDecodeError:
        raise _NodeError("its name is not percent-encoded UTF-8") from None


def _config(content: bytes | None) -> dict[str, msgspec.Raw]:
    if not content:
        return {}
    try:
        return msgspec.json.decode(content, type=_Content).config
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # neither message contains the content
        what = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise _NodeError(f"cannot be read: {what}") from None
    except RecursionError:
        raise _NodeError("cannot be read: nested too deeply") from None


def _number(written: msgspec.Raw) -> float:
    """Return the value of a quota in a znode as a number. Kafka writes it as a string; an administrator may
    have written a number. Raises _NodeError.
    """
    try:
        value = msgspec.json.decode(written, type=str | int | float)
    except msgspec.DecodeError:
        raise _NodeError("neither a number nor a string with one") from None
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        raise _NodeError(f"{_shown(value)!a} is no number")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."
