"""Arguments of `weir quotas`: entity, key, value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from difflib import get_close_matches
from functools import wraps
from typing import Final, TypeVar

import click

from quotas import DEFAULT, Entity, Prefix, QuotaKey
from quotas.table.entities import Name
from quotas.table.names import canonical_ip

F = TypeVar("F", bound=Callable[..., object])

_UNITS: Final = {"": 1, **{letter: 1000**power for power, letter in enumerate("kmg", start=1)}}
_BINARY: Final = {f"{letter}i": 1024**power for power, letter in enumerate("kmg", start=1)}
_FACTORS: Final[dict[str, int]] = {
    written: factor
    for letter, factor in {**_UNITS, **_BINARY}.items()
    for written in ((letter, f"{letter}b") if letter else (letter,))
}
"""Factors of byte units, in lower case: "", k, kb, ki, kib, m, …"""
_RATE: Final = re.compile(r"(?P<number>\d+(\.\d*)?|\.\d+)\s*(?P<unit>[a-z]*)", re.IGNORECASE)
_BYTES: Final = (QuotaKey.PRODUCER_BYTE_RATE, QuotaKey.CONSUMER_BYTE_RATE)
_KEYS: Final = {key.value: key for key in QuotaKey}

RATES_HELP: Final = (
    "A byte rate may end in K, M, G (thousands: 2M is 2000000) or Ki, Mi, Gi (1024s: 2Mi is 2097152), "
    "with or without a B; upper or lower case is the same."
)


def entity_options(command: F) -> F:
    """Give a command the options that name an entity, and their `Entity` as argument `entity`."""

    @wraps(command)
    def with_entity(
        *,
        user: str | None,
        default_user: bool,
        client_id: str | None,
        default_client_id: bool,
        client_id_prefix: str | None,
        ip: str | None,
        default_ip: bool,
        topic: str | None,
        **others: object,
    ) -> object:
        prefix = Prefix(client_id_prefix) if client_id_prefix is not None else None
        named = _one("client-id", client_id, default_client_id)
        if named is not None and prefix is not None:
            raise click.UsageError("one of --client-id, --default-client-id and --client-id-prefix at a time")
        try:
            entity = Entity(
                _one("user", user, default_user),
                prefix if prefix is not None else named,
                _one("ip", address(ip), default_ip),
                topic,
            )
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        return command(entity=entity, **others)

    for option in reversed(_ENTITY_OPTIONS):
        option(with_entity)
    return with_entity  # type: ignore[return-value]  # the same command, with other parameters


_ENTITY_OPTIONS: Final = (
    click.option("--user", metavar="NAME", help="A principal's name, without User:."),
    click.option("--default-user", is_flag=True, help="Every user without a quota of its own."),
    click.option("--client-id", metavar="NAME", help="A client-id; with --user, of that user only."),
    click.option("--default-client-id", is_flag=True, help="Every client-id without a quota of its own."),
    click.option(
        "--client-id-prefix", metavar="START", help="Client-ids with this prefix, which share one quota."
    ),
    click.option("--ip", metavar="ADDRESS", help="An address (connection_creation_rate)."),
    click.option("--default-ip", is_flag=True, help="Every address without a quota of its own."),
    click.option("--topic", metavar="NAME", help="A topic (byte rates of all its clients together)."),
)


def _one(what: str, name: str | None, default: bool) -> Name | None:
    if name is not None and default:
        raise click.UsageError(f"either --{what} or --default-{what}")
    return DEFAULT if default else name


def check_user(name: Name | None) -> None:
    """Raise click.UsageError for a principal with its type, as in `admins`: quotas have names only."""
    if isinstance(name, str) and name.startswith("User:"):
        raise click.UsageError(f"--user is {name!r}: leave out User:, quotas have the principal's name alone")


def address(ip: str | None) -> str | None:
    """Return an address in its usual spelling. Raises click.UsageError."""
    try:
        return ip and canonical_ip(ip)
    except ValueError:
        raise click.UsageError(f"--ip is {ip!r}, must be an IPv4 or IPv6 address") from None


def parse_key(text: str) -> QuotaKey:
    """Parse a quota key. Raises click.UsageError."""
    if text in _KEYS:
        return _KEYS[text]
    close = get_close_matches(text.lower(), _KEYS, n=1)
    advice = f"did you mean {close[0]}?" if close else f"known: {', '.join(_KEYS)}"
    raise click.UsageError(f"unknown key {text!r}; {advice}")


def parse_assignments(written: Iterable[str]) -> dict[QuotaKey, float]:
    """Parse KEY=VALUE arguments. Raises click.UsageError."""
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
    match = _RATE.fullmatch(text)
    factor = _FACTORS.get(match["unit"].lower()) if match is not None else None
    if match is None or factor is None or (match["unit"] and key not in _BYTES):
        example = "a number such as 1048576, 1.5M or 2MiB" if key in _BYTES else "a plain number"
        raise click.UsageError(f"{key.value} is {text!r}, must be {example}")
    return float(Decimal(match["number"]) * factor)  # as a float, 1.1M is not a whole number
