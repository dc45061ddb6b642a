"""What every client does, and what it saw while doing it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

Acks = Literal[0, 1, "all"]
MAX_MESSAGE_BYTES = 2 << 20  # what the test clusters take


class ClientError(Exception):
    """A client could not do its job; the text is what the client said."""


class Record(NamedTuple):
    partition: int
    offset: int
    value: bytes
    at_s: float
    """When the client handed it out, in seconds since it began."""


@dataclass(frozen=True, slots=True)
class Produced:
    """What a producer saw.

    `throttle_ms` lists each throttle time above zero that the client itself reports, in order;
    `throttle_max_ms` is the largest. `seconds` runs from the first send to the last answer.
    """

    seconds: float
    throttle_max_ms: float
    throttle_ms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Consumed:
    """What a consumer saw: `records` in the order it got them, the rest as in Produced."""

    records: tuple[Record, ...]
    seconds: float
    throttle_max_ms: float
    throttle_ms: tuple[float, ...] = ()

    @property
    def values(self) -> list[bytes]:
        return [record.value for record in self.records]


class Client(Protocol):
    """One client library. `config` holds options in the library's own names, and has the last word."""

    @property
    def name(self) -> str:
        """The library, and its release if that is fixed; for test ids."""

    def running(self) -> AbstractContextManager[Client]:
        """The client for several jobs, one after another. They share a process if the library needs one."""

    def produce(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[bytes],
        *,
        acks: Acks = "all",
        partition: int | None = None,
        client_id: str = "weir-tests",
        config: Mapping[str, Any] | None = None,
        timeout_s: float = 60.0,
    ) -> Produced:
        """Send all messages, as fast as the client can; return when each is answered. Raises ClientError."""

    def consume(
        self,
        bootstrap: str,
        topic: str,
        count: int,
        *,
        group: str | None = None,
        client_id: str = "weir-tests",
        config: Mapping[str, Any] | None = None,
        timeout_s: float = 60.0,
    ) -> Consumed:
        """Read until `count` records came: from the topic's start, or as a member of `group` (and commit).

        More than `count` are returned if the last batch brought more. Raises ClientError if fewer came.
        """
