"""The terminal program, by textual."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import ClassVar, Final

import msgspec
from rich.text import Text
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.events import Resize
from textual.widgets import DataTable, Footer, Input, Static

from weir.cli.admin_endpoint import AdminError
from weir.cli.quotas.show import clean
from weir.cli.top import detail
from weir.cli.top.cells import fitted, hidden, problems, rows, shown, summary
from weir.cli.top.freshness import Freshness
from weir.cli.top.readings import SORTS, Reader, TopReading, View, Wanted
from weir.proxy.control.snapshots.filters import TEXT_CHARS_MAX
from weir.proxy.control.snapshots.records import Broker, ConnectionRecord, EntityRecord

STYLES: Final = ("", "yellow", "bold red")
"""Style of a row by its level."""
SECOND_S: Final = 1.0


class Program(App[None]):
    """Lists of entities, connections and brokers, and the detail of one record."""

    CSS = """
    #problems, #freshness, #filter { display: none; }
    #problems { color: $text-error; max-height: 6; }
    #freshness { background: $warning; color: auto; }
    #summary, #chosen { height: 1; }
    #chosen { color: $text-muted; }
    #filter { border: none; height: 1; padding: 0; }
    #table { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; }
    #detail { height: 1fr; display: none; scrollbar-size-vertical: 1; }
    """
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "view('entities')", "Entities"),
        Binding("c", "view('connections')", "Conns"),
        Binding("b", "view('brokers')", "Brokers"),
        Binding("s", "sort", "Sort"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("h", "shadow", "Shadow"),
        Binding("space", "pause", "Pause", key_display="spc"),
        Binding("escape", "leave", "Back", key_display="esc"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "interrupt", "Stop", show=False, priority=True),
    ]

    def __init__(
        self,
        reader: Reader,
        wanted: Wanted,
        first: TopReading,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin with a first reading; `reader` is called in a thread, every `interval_s`."""
        super().__init__()
        self.interrupted = False
        """True if Ctrl-C has ended the program."""
        self.wanted = wanted
        self._sorts = {wanted.view: wanted.sort}
        self._reader = reader
        self._reading = first
        self._shown = wanted
        """The choice that the latest reading answers. It differs from `wanted` until Weir has answered."""
        self._interval_s = interval_s
        self._freshness = Freshness(clock, interval_s)
        self._lock = asyncio.Lock()
        self._queued = False
        """True while a reading waits for the end of another."""
        self._paused = False
        self._opened: str | None = None
        self._record: EntityRecord | ConnectionRecord | Broker | None = None

    def compose(self) -> ComposeResult:
        """Yield the widgets, from the top of the screen."""
        yield Static(id="summary", markup=False)
        yield Static(id="problems", markup=False)
        yield Static(id="freshness", markup=False)
        yield Static(id="chosen", markup=False)
        yield Input(placeholder="part of a name", max_length=TEXT_CHARS_MAX, id="filter", compact=True)
        yield DataTable(id="table", cursor_type="row", cell_padding=0, zebra_stripes=False)
        with VerticalScroll(id="detail"):
            yield Static(id="record", markup=False)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Show the first reading, and begin to read."""
        self.query_one("#table").focus()
        self.show()
        self.set_interval(self._interval_s, self.tick)
        self.set_interval(SECOND_S, self._show_freshness)

    def tick(self) -> None:
        """Read again, except while the program is paused or is reading."""
        if not self._paused and not self._lock.locked():
            self.run_worker(self.reread())

    async def reread(self) -> None:
        """Read again, and show the reading. If Weir does not answer, the latest records stay. One reading
        runs at a time, and at most one waits for its end.
        """
        if self._queued:
            return
        self._queued = True
        async with self._lock:
            self._queued, wanted = False, self.wanted
            try:
                reading = await asyncio.to_thread(self._reader, wanted)
            except AdminError as error:
                self._freshness.failed(error)
                self._show_freshness()
                return
            self._freshness.succeeded()
            if wanted is self.wanted and self._has_screen():
                self._reading, self._shown = reading, wanted
                self.show()

    # Screen

    def show(self) -> None:
        """Show the latest reading."""
        self._show_line("#problems", "\n".join(problems(self._reading.status)))
        self.query_one("#chosen", Static).update(_line(self._chosen()))
        self._show_freshness()
        if self._opened is None:
            self._show_table()
        else:
            self._show_record()

    def _show_line(self, widget: str, text: str) -> None:
        static = self.query_one(widget, Static)
        static.update(Text(text))
        static.display = bool(text)

    def _has_screen(self) -> bool:
        """Return False while the program ends: its widgets are gone, but a reading may still come."""
        return bool(self.screen_stack) and bool(self.query("#freshness"))

    def _show_freshness(self) -> None:
        if not self._has_screen():
            return
        status, is_stale = self._reading.status, self._freshness.is_stale(paused=self._paused)
        style = "" if status.ready and not is_stale else "bold red"
        self.query_one("#summary", Static).update(_line(summary(status, is_stale=is_stale), style))
        self._show_line("#freshness", self._freshness.line(paused=self._paused))

    def _chosen(self) -> str:
        wanted, number = self._shown, hidden(self._reading)
        is_shadow = self._reading.is_shadow(wanted) and wanted.view is View.ENTITIES
        parts = [f"{wanted.view.value}{' of shadow quotas' if is_shadow else ''}"]
        if wanted.view is View.ENTITIES:
            parts.append("throttled ones first")
        if wanted.sort:
            parts.append(f"by {wanted.sort}")
        if wanted.text:
            parts.append(f"with {clean(wanted.text)}")
        if number:
            parts.append(f"{number} more, use a filter")
        return ", ".join(parts)

    def _show_table(self) -> None:
        """Fill the table. The cursor stays at its record, and the first line at its place."""
        table = self.query_one("#table", DataTable)
        selected, top = self._selected(), table.scroll_y
        chosen = shown(self._shown.view, self.size.width - 1)  # one cell is the scroll bar's
        table.clear(columns=True)
        for number, column in chosen:
            table.add_column(Text(fitted(column.title, column)), width=column.width + 1, key=str(number))
        found = rows(self._reading)
        for row in found:
            texts = [fitted(row.cells[number], column) for number, column in chosen]
            table.add_row(*(Text(text, STYLES[row.level]) for text in texts), key=row.id)
        names = [row.id for row in found]
        if selected in names:
            table.move_cursor(row=names.index(selected), scroll=False)
        table.scroll_to(y=top, animate=False)

    def _selected(self) -> str | None:
        table = self.query_one("#table", DataTable)
        if not table.is_valid_coordinate(table.cursor_coordinate):
            return None
        return table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value

    def _show_record(self) -> None:
        assert self._opened is not None
        found = detail.found(self._reading, self._opened)
        missing = [] if found is not None else ["no longer in the list; this was the latest:", ""]
        self._record = found or self._record
        if self._record is not None:
            lines = [*missing, *detail.lines(self._record, self._reading)]
            self.query_one("#record", Static).update(Text("\n".join(lines)))

    def on_resize(self, _event: Resize) -> None:
        """Choose columns for the new width."""
        self.call_after_refresh(self.show)

    # Keys

    def action_view(self, view: str) -> None:
        """Show another list."""
        self._sorts[self.wanted.view] = self.wanted.sort
        chosen = View(view)
        order = self._sorts.get(chosen, next(iter(SORTS[chosen]), ""))
        self._close()
        self._want(msgspec.structs.replace(self.wanted, view=chosen, sort=order))

    def action_sort(self) -> None:
        """Take the view's next order."""
        orders = SORTS[self.wanted.view]
        if orders and self._opened is None:
            after = orders[(orders.index(self.wanted.sort) + 1) % len(orders)]
            self._want(msgspec.structs.replace(self.wanted, sort=after))

    def action_shadow(self) -> None:
        """Show shadow quotas, or enforced ones again."""
        if self.wanted.view is View.ENTITIES and self._opened is None:
            other = not self._reading.is_shadow(self.wanted)
            self._want(msgspec.structs.replace(self.wanted, shadow=other))

    def action_pause(self) -> None:
        """Stop reading, or go on."""
        self._paused = not self._paused
        self._show_freshness()
        if not self._paused:
            self.run_worker(self.reread())

    def action_filter(self) -> None:
        """Ask for a text that names contain."""
        if self._opened is None:
            field = self.query_one("#filter", Input)
            field.value, field.display = self.wanted.text, True
            field.focus()

    def action_leave(self) -> None:
        """Leave the filter's line or the detail of a record; in a list, remove the filter."""
        field = self.query_one("#filter", Input)
        if field.display:
            self._close_filter()
        elif self._opened is not None:
            self._close()
            self._want(msgspec.structs.replace(self.wanted, entity=None))
        elif self.wanted.text:
            self._want(msgspec.structs.replace(self.wanted, text=""))

    def action_interrupt(self) -> None:
        """End the program because of Ctrl-C."""
        self.interrupted = True
        self.exit()

    @on(Input.Submitted, "#filter")
    def _filtered(self, event: Input.Submitted) -> None:
        self._close_filter()
        self._want(msgspec.structs.replace(self.wanted, text=event.value))

    @on(DataTable.RowSelected, "#table")
    def _open(self, event: DataTable.RowSelected) -> None:
        self._opened = event.row_key.value
        self.query_one("#table").display = False
        self.query_one("#detail").display = True
        self.query_one("#detail").focus()
        self._show_record()
        if isinstance(self._record, EntityRecord):
            self._want(msgspec.structs.replace(self.wanted, entity=self._record))

    def _close_filter(self) -> None:
        self.query_one("#filter").display = False
        self.query_one("#table").focus()

    def _close(self) -> None:
        self._opened = self._record = None
        self.query_one("#detail").display = False
        self.query_one("#table").display = True
        self.query_one("#table").focus()

    def _want(self, wanted: Wanted) -> None:
        """Read other records at once, also while the program is paused."""
        if wanted.view is not self.wanted.view:
            wanted = msgspec.structs.replace(wanted, entity=None)
        self.wanted = wanted
        self.run_worker(self.reread())


def _line(text: str, style: str = "") -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")
