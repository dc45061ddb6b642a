"""The problems of this process that operators see in `/api/status`, and hear of as events: brokers, the quota
store, usage records, certificates, limits, bugs. The admin endpoint adds those of readiness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from weir.proxy.close_reasons import CloseReason
from weir.proxy.control.events.health import Condition, broker_down, problem, store_failing
from weir.proxy.net.tls.contexts import ContextOfFiles
from weir.proxy.outage import Outage

if TYPE_CHECKING:
    from weir.proxy.control.stores.store import StoreHealth
    from weir.proxy.control.usage.tally import Tally
    from weir.proxy.server.server import Server

RECENT_S: Final = 60.0
"""Time (s) for which a counter of lost records or rejected clients that has risen counts as a problem."""
FAULT_S: Final = 3600.0
"""Time (s) for which a bug counts as a problem: operators come later."""
EXPIRES_S: Final = 14 * 86_400
"""Time (s) before the end of a certificate from which it counts as a problem."""
CLIENTS_SHOWN_MAX: Final = 5
"""Maximum number of clients that a problem names."""
_DAY_S: Final = 86_400


def watch_outages(server: Server, store: StoreHealth) -> None:
    """Have the server's health watch the quota store and the TLS files."""
    server.health.watch(
        store.outage, lambda outage: store_failing(store.name, outage.reason, outage.changed_s)
    )
    for files in server.config.tls_files:
        server.health.watch(files.outage, partial(_tls_files_refused, files.name))


def _tls_files_refused(name: str, _outage: Outage) -> Condition:
    return problem(
        f"tls_files_refused {name}",
        f"Changed TLS files ({name}) are refused; the older ones are in force.",
        "The log has the mistake. Replace the files.",
    )


class Problems:
    """Reads the problems that are present now. `Problems.read` is a source of `Health`."""

    def __init__(
        self,
        server: Server,
        usage: Tally | None,
        wall_s: Callable[[], float],
        monotonic_s: Callable[[], float],
    ) -> None:
        """Begin before the server serves: all that it counts is new. `wall_s` returns the Unix time (s), and
        `monotonic_s` the time (s) of a clock that nobody sets.
        """
        self._server = server
        self._usage = usage
        self._wall_s = wall_s
        self._monotonic_s = monotonic_s
        self._counts: dict[str, tuple[int, float]] = {"log_lines_lost": (server.log_lines_lost, -math.inf)}
        """The last value of each counter, and the monotonic time (s) of its latest rise, by the problem's
        name.
        """

    def read(self) -> Iterator[Condition]:
        """Yield the problems that are present now, the worst first."""
        yield from self._brokers()
        if self._usage is not None:
            yield from self._of_usage(self._usage)
        for files in self._server.config.tls_files:
            yield from self._of_files(files)
        yield from self._limits()
        yield from self._clients()
        yield from self._faults()

    def _brokers(self) -> Iterator[Condition]:
        addresses, states = self._server.address_book, self._server.broker_states
        if outside := addresses.left_out.node_ids():
            yield problem(
                "brokers_without_listener",
                f"Broker {', '.join(map(str, outside))} has no listener: clients cannot use its partitions.",
                "Change broker_ports. The log has the ids that fit.",
            )
        for address, reason in addresses.without_broker.items():
            yield problem(
                f"misdirected {address}",
                f"{address} is not used: {reason}.",
                "Correct the broker's advertised.listeners, or upstream. The log names the broker.",
            )
        if states.login_refused:
            yield problem(
                "login_refused",
                f"The brokers refuse Weir's own login: {states.login_refused}.",
                "Correct upstream_sasl_username and upstream_sasl_password_file. Clients have own logins.",
            )
        for node_id in sorted(addresses.nodes):
            outage = states.outages.get(node_id)
            if outage is not None and outage.failing:
                yield broker_down(node_id, outage.reason, outage.changed_s)

    def _of_usage(self, usage: Tally) -> Iterator[Condition]:
        if usage.failure:
            yield problem(
                "usage_not_written",
                f"Usage cannot be written: {usage.failure}.",
                "Free the disk of usage, or mend the cluster of its topic.",
            )
        if self._has_risen("usage_dropped", sum(usage.dropped.values())):
            yield problem(
                "usage_dropped",
                "Usage records are dropped.",
                "The log has the reason: usage records dropped.",
            )

    def _of_files(self, files: ContextOfFiles) -> Iterator[Condition]:
        left_s = files.expires_s - self._wall_s()
        if files.expires_s and left_s < EXPIRES_S:
            when = "has expired" if left_s <= 0 else f"expires in {left_s / _DAY_S:.1f} days"
            yield problem(
                f"certificate_{'expired' if left_s <= 0 else 'expires'} {files.name}",
                f"The certificate of {files.name} {when}.",
                "Replace the certificate; Weir reads the new files by itself.",
                logged=True,
            )

    def _limits(self) -> Iterator[Condition]:
        if self._server.gauges.reading_stopped:
            yield problem(
                "buffered_bytes_max",
                "No connection is read, because buffered_bytes_max is reached.",
                "Find the clients or brokers that do not read, or raise buffered_bytes_max.",
            )
        if self._has_risen("connections_max", self._closed(CloseReason.CONNECTION_LIMIT)):
            yield problem(
                "connections_max",
                "Clients are turned away, because connections_max is reached.",
                "Find the clients with many connections, or raise connections_max.",
            )

    def _clients(self) -> Iterator[Condition]:
        """Yield the problem of clients that use versions which this Weir does not offer."""
        counts = self._server.counters.not_offered
        clients = [who for who in counts if self._has_risen(f"not offered to {who}", counts[who])]
        if clients:
            shown = "; ".join(clients[:CLIENTS_SHOWN_MAX] + ["others"] * (len(clients) > CLIENTS_SHOWN_MAX))
            yield problem(
                "versions_not_offered",
                f"Clients use versions that this Weir does not offer: {shown}.",
                "Restart these clients, and give all Weirs behind one name the same uplift and quotas.",
            )

    def _faults(self) -> Iterator[Condition]:
        if self._has_risen("log_lines_lost", self._server.log_lines_lost):
            yield problem(
                "log_lines_lost",
                "Lines of the log are lost.",
                "Free the disk of the log, or restart the program that reads it.",
            )
        failures = sum(self._server.counters.task_failures.values())
        if self._has_risen(
            "internal_error", failures + self._closed(CloseReason.INTERNAL_ERROR), lasts_s=FAULT_S
        ):
            yield problem(
                "internal_error",
                "A bug in Weir has stopped one of its tasks, or closed a connection, in the last hour.",
                "Report the stack trace in the log.",
            )

    def _closed(self, reason: CloseReason) -> int:
        """Return the number of connections that were closed for this reason."""
        closed = self._server.counters.closed_at
        return sum(count for (why, _node_id), count in closed.items() if why is reason)

    def _has_risen(self, name: str, count: int, lasts_s: float = RECENT_S) -> bool:
        """Return True if this counter has risen in the last `lasts_s`."""
        now_s = self._monotonic_s()
        before, risen_s = self._counts.get(name, (0, -math.inf))
        if count > before:
            risen_s = now_s
        self._counts[name] = (count, risen_s)
        return now_s - risen_s < lasts_s
