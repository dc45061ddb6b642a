"""`weir top --view replication`: replication quotas, with bars and colours, as plain text, or as
JSON.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from time import sleep
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, Self

import click

from weir.cli.admin_endpoint import AdminError, EndpointAccess, ask
from weir.cli.exits import CommandError
from weir.cli.quotas.show import clean, columns, echo_json, in_bytes
from weir.proxy.addresses import Address
from weir.proxy.admin.replication.status import PATH, BrokerStatus, ReplicaStatus, ReplicationStatus

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

UNKNOWN: Final = "-"
BAR_COLUMNS: Final = 12
COLOURS: Final = {"held back": "yellow", "copying": "cyan", "in sync": "green"}


class BrokerRow(NamedTuple):
    """Cells of one line in the table of brokers."""

    broker: str
    role: str
    rate: str
    limit: str
    used: str
    """Rate in percent of the limit."""


class ReplicaRow(NamedTuple):
    """Cells of one line in the table of throttled replicas."""

    replica: str
    brokers: str
    """Node ids of the leader and the follower."""
    state: str
    done: str
    lag: str
    rate: str
    left: str


BROKERS: Final = BrokerRow("broker", "role", "rate", "limit", "used")
REPLICAS: Final = ReplicaRow("partition", "from -> to", "state", "done", "lag", "rate", "left")
RIGHT: Final = frozenset({"rate", "limit", "used", "done", "lag", "left"})


class StatusScreen(Protocol):
    """An output of the status."""

    def show(self, status: ReplicationStatus, /) -> None:
        """Show a status."""

    def complain(self, error: str, /) -> None:
        """Show why the status is unknown now."""

    def __enter__(self) -> Self:
        """Return the screen itself."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the terminal."""


class PrintedScreen:
    """A screen that prints each status below the last one: as plain text, as JSON, or with colours."""

    def __init__(self, *, as_json: bool, console: Console | None = None) -> None:
        """`console` is the terminal, if there is one."""
        self._as_json = as_json
        self._console = console
        self._shown = False

    def __enter__(self) -> Self:
        """Return the screen itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: the terminal is unchanged."""

    def show(self, status: ReplicationStatus) -> None:
        """Print a status; on a pipe, at once."""
        if self._as_json:
            echo_json(status)
        elif self._console is not None:
            self._console.print(drawn(status))
        else:
            click.echo(("\n" if self._shown else "") + "\n".join(lines(status)))
        self._shown = True
        sys.stdout.flush()

    def complain(self, error: str) -> None:
        """Print an error on stderr."""
        click.echo(f"weir: {error}", err=True)


class LiveStatusScreen:
    """A screen that redraws the status in place on a terminal."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live  # `weir run` does not need it

        self._console = console
        self._live = Live(console=console, auto_refresh=False)
        self._latest: ReplicationStatus | None = None

    def __enter__(self) -> Self:
        """Begin to redraw."""
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop redrawing; the latest status stays on the terminal."""
        self._live.stop()

    def show(self, status: ReplicationStatus) -> None:
        """Redraw with a new status; replicas that do not fit into the terminal are only counted."""
        self._latest = status
        self._live.update(drawn(status, height=self._console.height), refresh=True)

    def complain(self, error: str) -> None:
        """Redraw with the latest status, and the reason why it is old."""
        from rich.console import Group
        from rich.text import Text

        old = [] if self._latest is None else [drawn(self._latest, height=self._console.height - 1)]
        self._live.update(Group(Text(error, style="red"), *old), refresh=True)


def screen(*, as_json: bool, watch: bool) -> StatusScreen:
    """Return the screen for standard output: JSON if `as_json`; else for a terminal or a pipe."""
    from rich.console import Console

    console = Console(highlight=False)
    if as_json or not console.is_terminal or console.is_dumb_terminal:
        return PrintedScreen(as_json=as_json)
    return LiveStatusScreen(console) if watch else PrintedScreen(as_json=False, console=console)


def watch(address: Address, access: EndpointAccess, interval_s: float | None, *, as_json: bool) -> None:
    """Show the status of a running Weir once, or every `interval_s` without end. While it is watched, the
    endpoint may be away. Raises CommandError if it does not answer the first question.
    """
    with screen(as_json=as_json, watch=interval_s is not None) as shown:
        try:
            shown.show(ask(address, PATH, {}, ReplicationStatus, access))
        except AdminError as error:
            raise CommandError(clean(error)) from None
        while interval_s is not None:
            sleep(interval_s)
            try:
                shown.show(ask(address, PATH, {}, ReplicationStatus, access))
            except AdminError as error:
                shown.complain(clean(error))


def lines(status: ReplicationStatus) -> Iterator[str]:
    """Yield the status as lines of plain text."""
    yield summary(status)
    if status.brokers:
        yield from ("", *_aligned(BROKERS, [broker_row(broker) for broker in status.brokers]))
    if status.replicas:
        yield from ("", *_aligned(REPLICAS, [replica_row(replica) for replica in status.replicas]))
    if status.hidden:
        yield f"and {status.hidden} more"


def summary(status: ReplicationStatus) -> str:
    """Return one line about all throttled replicas."""
    if not status.configured:
        return "no replication listeners: Weir does not see replication (replication_upstream is not set)"
    if not status.topics:
        return "no replica is throttled"
    total, in_sync, held_back = (
        sum(getattr(follower, name) for follower in status.followers)
        for name in ("replicas", "in_sync", "held_back")
    )
    mode = "" if status.enforced else "; in shadow: nothing is held back"
    if not total:
        return f"{_counted(status.topics, 'topic')} throttled, but no throttled replica has fetched yet{mode}"
    return (
        f"{_counted(total, 'throttled replica')}: {in_sync} in sync, {total - in_sync - held_back} copying, "
        f"{held_back} held back{mode}"
    )


def broker_row(broker: BrokerStatus) -> BrokerRow:
    """Return the cells of a broker in one role."""
    limit = "none" if broker.limit is None else _rate(broker.limit)
    used = f"{100 * broker.rate / broker.limit:.0f} %" if broker.limit else UNKNOWN
    return BrokerRow(str(broker.node_id), broker.role, _rate(broker.rate), limit, used)


def replica_row(replica: ReplicaStatus) -> ReplicaRow:
    """Return the cells of a throttled replica."""
    return ReplicaRow(
        f"{clean(replica.topic)}-{replica.partition}",
        f"{replica.leader} -> {replica.follower}",
        "in sync" if replica.in_sync else "held back" if replica.held_back else "copying",
        _percent(replica.share_done),
        UNKNOWN if replica.lag is None else str(replica.lag),
        _rate(replica.rate),
        UNKNOWN if replica.in_sync or replica.time_left_s is None else duration(replica.time_left_s),
    )


def duration(seconds: float) -> str:
    """Return a time as text with its two largest units, such as `1 h 5 min`."""
    whole = round(seconds)
    for unit, name, smaller, smaller_name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit:
            return f"{whole // unit} {name} {whole % unit // smaller} {smaller_name}"
    return f"{whole} s"


def drawn(status: ReplicationStatus, height: int | None = None) -> RenderableType:
    """Return the status for a terminal. `height` is the number of lines that it may have; None for all."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [Text(summary(status))]
    if status.brokers:
        parts += ["", _broker_table(status.brokers)]
    taken = len(status.brokers) + 7  # the headings, the empty lines, the lines before and after
    room = len(status.replicas) if height is None else max(height - taken, 1)
    if status.replicas:
        parts += ["", _replica_table(status.replicas[:room])]
    hidden = status.hidden + len(status.replicas[room:])
    if hidden:
        parts.append(Text(f"and {hidden} more", style="dim"))
    return Group(*parts)


def _broker_table(brokers: Sequence[BrokerStatus]) -> Table:
    table = _table(BROKERS)
    for broker in brokers:
        cells, share = broker_row(broker), broker.rate / broker.limit if broker.limit else 0.0
        table.add_row(*cells, _bar(share, "yellow" if share >= 1 else "green"))
    return table


def _replica_table(replicas: Sequence[ReplicaStatus]) -> Table:
    from rich.text import Text

    table = _table(REPLICAS)
    for replica in replicas:
        cells = replica_row(replica)
        texts = [Text(cell, style=COLOURS.get(cell, "")) for cell in cells]
        table.add_row(*texts, _bar(replica.share_done, COLOURS[cells.state]))
    return table


def _table(headings: BrokerRow | ReplicaRow) -> Table:
    """Return a terminal table with these columns, and a last one for bars. On a narrow terminal only names of
    partitions and bars get less room.
    """
    from rich.table import Table

    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for name in headings:
        justify: Literal["left", "right"] = "right" if name in RIGHT else "left"
        is_name = name == REPLICAS.replica
        table.add_column(
            name, justify=justify, overflow="fold", no_wrap=not is_name, min_width=12 if is_name else None
        )
    table.add_column("", min_width=BAR_COLUMNS // 3, max_width=BAR_COLUMNS)
    return table


def _bar(share: float, colour: str) -> RenderableType:
    from rich.progress_bar import ProgressBar

    return ProgressBar(total=1, completed=min(share, 1), complete_style=colour, finished_style=colour)


def _aligned(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines of plain text; numbers are aligned at the right."""
    table = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return columns(
        [
            [
                cell.rjust(width) if name in RIGHT else cell
                for name, cell, width in zip(headings, row, widths, strict=True)
            ]
            for row in table
        ]
    )


def _rate(value: float) -> str:
    return f"{in_bytes(value)}/s"


def _percent(share: float) -> str:
    """Return a share in percent, rounded down, so that 100 % means that nothing is left."""
    return f"{int(share * 1000) / 10:.1f} %"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
