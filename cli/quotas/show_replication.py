"""Format replication throttles (KIP-73) for the `weir quotas` commands, as text and as JSON.

In JSON a resource is an object with its name by its kind; null stands for all brokers without a value of
their own. Values are texts in Kafka's form.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

import click
import msgspec

from weir.cli.quotas.show import clean, columns
from weir.quotas.replication.throttles import ReplicationThrottles, ResourceType
from weir.quotas.table.quota_entry import DEFAULT_MARKER
from weir.quotas.table.replication_entry import Resource, replication_entries

ResourceJson: TypeAlias = dict[str, str | None]
"""One pair: `broker` and the node id, or `topic` and its name; null is every broker."""


class ReplicationJson(msgspec.Struct):
    """JSON object with the replication throttles of a broker or topic."""

    resource: ResourceJson
    throttles: dict[str, str]
    """Name of each configuration → value."""


class ReplicationChange(msgspec.Struct):
    """JSON object with a throttle's value before and after a change; null if the throttle is not set."""

    resource: ResourceJson
    throttle: str
    before: str | None
    after: str | None


def replication_changes(
    before: ReplicationThrottles, wanted: ReplicationThrottles
) -> list[ReplicationChange]:
    """Return one change for each wanted throttle: its value in `before`, and the wanted value."""
    return [
        ReplicationChange(resource_json(Resource.of(key)), key.name, before.values.get(key), value)
        for key, value in wanted.values.items()
    ]


def show_replication_changes(changes: Iterable[ReplicationChange]) -> None:
    """Print one line per change: value before -> value after."""
    for change in changes:
        ((kind, name),) = change.resource.items()
        was, now = _or_none(change.before), _or_none(change.after)
        arrow = f"{was}, unchanged" if change.before == change.after else f"{was} -> {now}"
        click.echo(f"{clean(f'{kind} {name or DEFAULT_MARKER}')}: {change.throttle} {arrow}")


def replication_json(throttles: ReplicationThrottles) -> list[ReplicationJson]:
    """Return one JSON object for each broker and topic that has throttles."""
    return [
        ReplicationJson(resource_json(resource), values)
        for resource, values in replication_entries(throttles)
    ]


def resource_json(resource: Resource) -> ResourceJson:
    """Return the kind and name of a resource, such as `{"broker": "1"}`; every broker is None."""
    kind = "topic" if resource.kind is ResourceType.TOPIC else "broker"
    return {kind: resource.name or None}


def show_replication(throttles: ReplicationThrottles) -> None:
    """Print a table with a line per throttle."""
    rows = [
        (clean(resource), name, _or_none(value))
        for resource, values in replication_entries(throttles)
        for name, value in values.items()
    ]
    heading, *lines = columns([("replication", "throttle", "value"), *rows])
    click.secho(heading, bold=True)
    click.echo("\n".join(lines))


def _or_none(value: str | None) -> str:
    return clean(value) if value else "none"
