"""The protected topics of a process, the principals that may change them, and the log lines about changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from weir.protocol.api import ApiKey
from weir.proxy.logs import Note, Write, at_once, audit_logger

if TYPE_CHECKING:
    from weir.proxy.handlers.plan import Context, RequestClient

audit = audit_logger("weir.audit")

LOGGED_NAMES_MAX: Final = 5


class ProtectedTopics:
    """Names of the topics that only some principals may write to or change. The object's truth value is False
    if no topic is protected.
    """

    def __init__(
        self,
        names: Collection[str] = (),
        admins: Collection[str] = (),
        note: Note = at_once,
    ) -> None:
        """Begin with the names of the protected topics. `admins` are the principals that may change these
        topics; `note` limits the rate of log lines.
        """
        self.names: Final = frozenset(names)
        self.on_wire: Final = frozenset(name.encode() for name in names)
        """Names of the protected topics in UTF-8."""
        self._admins: Final = frozenset(admins)
        self._note = note

    def __bool__(self) -> bool:
        """Return True if any topic is protected."""
        return bool(self.names)

    def occur(self, data: bytearray, start: int, end: int) -> bool:
        """Return True if `data[start:end]` contains the bytes of a protected name."""
        return any(data.find(name, start, end) >= 0 for name in self.on_wire)

    def refuses(self, client: RequestClient) -> bool:
        """Return True if the client may not change protected topics: it is neither an admin nor a broker."""
        return client.user not in self._admins and not client.is_broker

    def changed(self, context: Context, api_key: int, topics: Collection[str]) -> None:
        """Log that an admin changes these protected topics."""
        self._say(_changed, context, api_key, topics)

    def refused(self, context: Context, api_key: int, topics: Collection[str]) -> None:
        """Count and log a refused change of these protected topics."""
        context.counters.protected_refused[api_key] += 1
        self._say(_refused, context, api_key, topics)

    def _say(self, write: Write, context: Context, api_key: int, topics: Collection[str]) -> None:
        client = context.client
        details = {
            "principal": f"User:{client.user}",
            "client": client.peer,
            "api": ApiKey(api_key).name,
            "topics": ", ".join(sorted(topics)[:LOGGED_NAMES_MAX]),
        }
        self._note(("protected topics", write, api_key), write, details)


def _changed(count: int, details: Mapping[str, object]) -> None:
    audit.info("protected topics changed", count=count, **details)


def _refused(count: int, details: Mapping[str, object]) -> None:
    audit.warning("change of protected topics refused", count=count, **details)
