"""Applies the rules to a capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from weir.conformance.events import Bytes, Closed, Opened
from weir.conformance.verify.connection import ConnectionVerifier
from weir.conformance.verify.producers import Producers
from weir.conformance.verify.rules import R, check_names
from weir.conformance.verify.traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weir.conformance.events import Event
    from weir.conformance.verify.finding import Finding


def verify(events: Iterable[Event], without: Iterable[str] = ()) -> Iterator[Finding]:
    """Yield the findings of a capture, in the order of its events. `without`: names of rules that are
    switched off. Raises ValueError for a name that is no rule, and nothing for any bytes.

    Memory per connection does not grow with the connection's length: it is that of an incomplete frame and of
    the requests in flight.
    """
    verifier = Verifier(without)
    for event in events:
        yield from verifier.take(event)


class Verifier:
    """Applies the rules to events, one by one."""

    def __init__(self, without: Iterable[str] = (), traffic: Traffic | None = None) -> None:
        """`without`: names of rules that are switched off. `traffic`: counts to add to, for example those of
        several captures. Raises ValueError for a name that is no rule.
        """
        self.traffic = traffic or Traffic()
        """Counts of the events so far."""
        self._off = check_names(without)
        self._producers = Producers()
        self._connections: dict[int, ConnectionVerifier] = {}
        self._findings: list[Finding] = []

    def take(self, event: Event) -> list[Finding]:
        """Return the findings that an event leads to."""
        connection = self._connection(event)
        if isinstance(event, Bytes):
            connection.feed(event.side, event.data, event.time_ns)
        elif isinstance(event, Closed):
            connection.closed(event.side, event.time_ns)
            if connection.ended:
                del self._connections[event.connection]
        elif not isinstance(event, Opened):
            connection.dropped(event.side, event.count, event.time_ns)
        found, self._findings = self._findings, []
        return found

    def _connection(self, event: Event) -> ConnectionVerifier:
        number = event.connection
        if number not in self._connections or isinstance(event, Opened):
            self.traffic.connections += 1
            self._connections[number] = ConnectionVerifier(
                number, self._producers, self.traffic, self._report
            )
        return self._connections[number]

    def _report(self, finding: Finding) -> None:
        if R(finding.rule) not in self._off:
            self._findings.append(finding)
