"""Lists of principals in the configuration: `User:alice;User:bob`, as in Kafka's `super.users`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proxy.config.config_error import ConfigError

if TYPE_CHECKING:
    from proxy.config.settings import Settings

_TYPE: Final = "User:"


def parse_principals(text: str, key: str) -> frozenset[str]:
    """Return the names, without type, of principals separated by `;`. Raises ConfigError naming `key`.

    Names are taken literally: they may contain colons, and commas as in a certificate's subject.

        >>> sorted(parse_principals("User:admin; User:CN=a,O=b", "admins"))
        ['CN=a,O=b', 'admin']
    """
    principals = [part.strip() for part in text.split(";")]
    return frozenset(_name(principal, key) for principal in principals if principal)


def broker_principals(settings: Settings) -> frozenset[str]:
    """Return the principals whose replica fetches are exempt; none unless brokers reach each other through
    Weir.

    Raises ConfigError.
    """
    names = parse_principals(settings.super_users, "super_users")
    if settings.inter_broker and not names:
        raise ConfigError("inter_broker is set, but super_users names nobody: say who the brokers are there")
    return names if settings.inter_broker else frozenset()


def _name(principal: str, key: str) -> str:
    name = principal.removeprefix(_TYPE)
    if name == principal or not name:
        raise ConfigError(f"{key} has {principal!r}, must be User:NAME, several separated by ;")
    if f",{_TYPE}" in name.replace(" ", ""):
        raise ConfigError(f"{key} has {principal!r} as one name: separate principals by ; instead of ,")
    return name
