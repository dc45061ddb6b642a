"""Parse the arguments of `weir quotas`: entity, key, value."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from typing import Final, TypeVar

import click

from weir.quotas import DEFAULT, Entity, Prefix, QuotaKey
from weir.quotas.table.entities import Name
from weir.quotas.table.names import canonical_ip
from weir.quotas.table.quota_entry import DEFAULT_MARKER
from weir.quotas.table.quota_kind import IN_BYTES, KINDS, UNLIMITED
from weir.quotas.units import parse

F = TypeVar("F", bound=Callable[..., object])

_KEYS: Final = {key.value: key for key in QuotaKey}

RATES_HELP: Final = (
    "A byte rate may end in KB, MB, GB (powers of 1000: 2MB is 2000000) or KiB, MiB, GiB (powers of 1024: "
    "2MiB is 2097152). The B may be left out; case does not matter."
)


def entity_options(command: F, *, needed: bool = True) -> F:
    """Return the command with the options that name an entity; it gets their `Entity` as argument `entity`.
    If an entity is not `needed`, the command gets None without any of the options.
    """

    @wraps(command)
    def with_entity(
        *,
        user: str | None,
        client_id: str | None,
        client_id_prefix: str | None,
        ip: str | None,
        topic: str | None,
        topic_prefix: str | None,
        group: str | None,
        **others: object,
    ) -> object:
        named = user, client_id, client_id_prefix, ip, topic, topic_prefix, group
        if not needed and not any(name is not None for name in named):
            return command(entity=None, **others)
        prefix = Prefix(client_id_prefix) if client_id_prefix is not None else None
        if client_id is not None and prefix is not None:
            raise click.UsageError("one of --client-id and --client-id-prefix at a time")
        try:
            entity = Entity(
                _name(user),
                prefix if prefix is not None else _name(client_id),
                DEFAULT if ip == DEFAULT_MARKER else address(ip),
                topic,
                group,
                topic_prefix,
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        return command(entity=entity, **others)

    for option in reversed(_ENTITY_OPTIONS):
        option(with_entity)
    return with_entity  # type: ignore[return-value]  # the same command, with other parameters


_ENTITY_OPTIONS: Final = (
    click.option(
        "--user", metavar="NAME", help="A principal's name, without User:; <default> is every other user."
    ),
    click.option(
        "--client-id", metavar="NAME", help="A client-id, or <default>; with --user, of that user only."
    ),
    click.option(
        "--client-id-prefix", metavar="START", help="Client-ids with this prefix, which share one quota."
    ),
    click.option("--ip", metavar="ADDRESS", help="An address, or <default> (connection_creation_rate)."),
    click.option("--topic", metavar="NAME", help="A topic (byte rates of all its clients together)."),
    click.option("--topic-prefix", metavar="START", help="Topics with this prefix (counts and storage)."),
    click.option("--group", metavar="NAME", help="A group (its members together); <all> is every client."),
)


def _name(name: str | None) -> Name | None:
    return DEFAULT if name == DEFAULT_MARKER else name


def check_user(name: Name | None) -> None:
    """Raise click.UsageError for a user written with a principal's type, such as `User:alice`; quotas have
    names only.
    """
    if isinstance(name, str) and name.startswith("User:"):
        raise click.UsageError(f"--user is {name!r}: leave out User:, quotas have the principal's name alone")


def address(ip: str | None) -> str | None:
    """Return an IP address in its canonical spelling, None for None. Raises click.UsageError for an invalid
    address.
    """
    try:
        return ip and canonical_ip(ip)
    except ValueError:
        raise click.UsageError(f"--ip is {ip!r}, must be an IPv4 or IPv6 address") from None


def parse_key(text: str) -> QuotaKey:
    """Return the quota key with this name. Raises click.UsageError for an unknown name."""
    if text in _KEYS:
        return _KEYS[text]
    close = get_close_matches(text.lower(), _KEYS, n=1)
    advice = f"did you mean {close[0]}?" if close else f"known: {', '.join(_KEYS)}"
    raise click.UsageError(f"unknown key {text!r}; {advice}")


def parse_assignments(written: Iterable[str]) -> dict[QuotaKey, float]:
    """Return the values of KEY=VALUE arguments by key. Raises click.UsageError for an invalid argument."""
    values: dict[QuotaKey, float] = {}
    for assignment in written:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise click.UsageError(f"{assignment!r} must be KEY=VALUE, such as producer_byte_rate=1048576")
        key = parse_key(name.strip())
        if key in values:
            raise click.UsageError(f"{key.value} is given twice")
        values[key] = _rate(key, text.strip())
    return values


def _rate(key: QuotaKey, text: str) -> float:
    if text == UNLIMITED:
        return float(KINDS[key].most)
    try:
        return float(parse(text, "bytes" if key in IN_BYTES else ""))
    except ValueError as error:
        raise click.UsageError(f"{key.value} is {text!r}, must be {error}") from None
