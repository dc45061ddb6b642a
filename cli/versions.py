"""`weir probe --versions`: the versions of a broker, of Weir, and those offered to clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import click
import msgspec
import trio

from weir.cli.exits import CommandError
from weir.cli.quotas.show import columns
from weir.cli.settings.options import one_broker
from weir.protocol import schema
from weir.protocol.api import versions as known_versions
from weir.protocol.versions import VersionRange
from weir.proxy.config import config
from weir.proxy.config.config import ConfigError
from weir.proxy.control.cluster.access import Access
from weir.proxy.control.cluster.connection import QuestionError
from weir.proxy.control.cluster.discovery import ask_versions
from weir.proxy.handlers.plans import QUOTA_APIS
from weir.proxy.handlers.uplift.uplift_rule import UpliftKind, offered, route

IN_WORDS: Final = {
    UpliftKind.PATCH: "renumbered",
    UpliftKind.THROTTLE: "throttle_time_ms inserted",
    UpliftKind.TRANSLATE: "translated",
}
HIDDEN: Final = "hidden"
"""Text that the table shows, in place of a version range, for an API that Weir does not offer to clients."""
OWN: Final = "answered by Weir"


class Uplifted(msgspec.Struct):
    """API versions that a broker lacks and Weir offers to clients all the same, with the kind of change that
    Weir makes to such requests and responses.
    """

    min: int
    max: int
    kind: str
    """Kind of change: `patch` changes only the version number in the request; `throttle` also adds
    throttle_time_ms to the response; `translate` encodes request and response anew.
    """


class ApiJson(msgspec.Struct):
    """JSON object for one API that the broker or Weir supports. A version range is null if there are no
    versions.
    """

    api_key: int
    name: str | None
    """Name of the API; null if Weir's schemas lack the API."""
    broker: VersionRange | None
    weir: VersionRange | None
    offered: VersionRange | None
    uplift: list[Uplifted]
    own: bool
    """True if Weir answers the API itself, whether or not the broker has it."""


class VersionsReport(msgspec.Struct):
    """The JSON object that `weir probe --versions --json` prints."""

    upstream: str
    uplift: bool
    apis: list[ApiJson]


class VersionsRow(NamedTuple):
    """Cells of one line in the table of APIs that `weir probe --versions` prints."""

    key: str
    api: str
    broker: str
    weir: str
    offered: str
    uplift: str


HEADINGS: Final = VersionsRow("key", "API", "broker", "Weir", "offered", "by uplift")


def show_versions(
    config_file: Path | None, timeout_s: float, upstream: Mapping[str, object], *, as_json: bool
) -> None:
    """Ask the broker that the settings name for its versions, and print them beside those that Weir offers.
    Raises CommandError.
    """
    try:
        loaded = config.load(config_file, upstream)
        address = one_broker(loaded)
        broker = trio.run(ask_versions, address, timeout_s, Access.of(loaded))
    except (ConfigError, QuestionError) as error:
        raise CommandError(str(error)) from None
    found = report(str(address), broker, uplift=loaded.settings.uplift)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        _print(found)


def report(upstream: str, broker: Mapping[int, VersionRange], *, uplift: bool) -> VersionsReport:
    """Return the JSON object that lists, for each API, the broker's versions, Weir's, and the versions
    offered to clients.
    """
    told = offered(broker, uplift=uplift, own=QUOTA_APIS)
    apis = [_entry(api_key, broker.get(api_key), told.get(api_key)) for api_key in sorted({*broker, *told})]
    return VersionsReport(upstream, uplift, apis)


def _entry(api_key: int, broker: VersionRange | None, told: VersionRange | None) -> ApiJson:
    api = schema.api(api_key)
    is_own = told is not None and api_key in QUOTA_APIS
    uplifted = [] if is_own or broker is None or told is None else list(_uplifted(api_key, broker, told))
    name = api.name if api is not None else None
    return ApiJson(api_key, name, broker, known_versions(api_key), told, uplifted, is_own)


def _uplifted(api_key: int, broker: VersionRange, told: VersionRange) -> Iterator[Uplifted]:
    """Yield the versions of an API that Weir offers although the broker lacks them; consecutive versions with
    the same kind of change are merged into one range.
    """
    ways = ((version, way.kind) for version in told if (way := route(api_key, version, broker)) is not None)
    for kind, run in groupby(ways, key=lambda way: way[1]):
        numbers = [version for version, _kind in run]
        yield Uplifted(numbers[0], numbers[-1], kind.name.lower())


def _row(entry: ApiJson) -> VersionsRow:
    kinds = {kind.name.lower(): words for kind, words in IN_WORDS.items()}
    uplift = [f"{VersionRange(each.min, each.max)} {kinds[each.kind]}" for each in entry.uplift]
    return VersionsRow(
        str(entry.api_key),
        entry.name or "unknown to Weir",
        str(entry.broker or "none"),
        str(entry.weir or "none"),
        str(entry.offered or HIDDEN),
        OWN if entry.own else ", ".join(uplift),
    )


def _summary(found: VersionsReport) -> str:
    hidden = sum(entry.offered is None for entry in found.apis)
    uplifted = sum(bool(entry.uplift) for entry in found.apis)
    uplift = f"{uplifted} with versions by uplift" if found.uplift else "without uplift"
    return f"{found.upstream}: {len(found.apis)} APIs, {uplift}, {hidden} hidden"


def _print(found: VersionsReport) -> None:
    """Print the table; on a terminal with colours."""
    rows = [HEADINGS, *map(_row, found.apis)]
    width = max(len(row.key) for row in rows)
    heading, *lines = columns([(row.key.rjust(width), *row[1:]) for row in rows])
    click.secho(heading, bold=True)
    for entry, line in zip(found.apis, lines, strict=True):
        is_uplifted = entry.offered is not None and entry.uplift
        click.secho(line, dim=entry.offered is None or None, fg="green" if is_uplifted else None)
    click.echo(f"\n{_summary(found)}")
