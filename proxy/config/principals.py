"""Principals in the configuration: lists such as `User:alice;User:bob`, as in Kafka's `super.users`, and the
credentials of Weir's own connections to brokers. (Clients' connections use the clients' credentials.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from weir.proxy.config.settings import ConfigError, Settings
from weir.proxy.files import PASSWORD_BYTES_MAX, read_text

_TYPE: Final = "User:"


def parse_principals(text: str, key: str) -> frozenset[str]:
    """Return the names, without type, of principals separated by `;`. Raises ConfigError, whose text names
    `key`.

    Names are taken literally: they may contain colons, and commas as in a certificate's subject.

        >>> sorted(parse_principals("User:admin; User:CN=a,O=b", "quota_admins"))
        ['CN=a,O=b', 'admin']
    """
    principals = [part.strip() for part in text.split(";")]
    return frozenset(_name(principal, key) for principal in principals if principal)


def _name(principal: str, key: str) -> str:
    name = principal.removeprefix(_TYPE)
    if name == principal or not name:
        raise ConfigError(f"{key} has {principal!r}, must be User:NAME, several separated by ;")
    if f",{_TYPE}" in name.replace(" ", ""):
        raise ConfigError(f"{key} has {principal!r} as one name: separate principals by ; instead of ,")
    return name


@dataclass(slots=True)
class TokenCache:
    """The access token that was fetched last."""

    token: str = field(default="", repr=False)
    """The token; "" before the first."""
    refresh_at_s: float = 0.0
    """Time (s, Trio's clock) at which to fetch another one."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A SASL mechanism, a user name, and a password that `repr` does not show."""

    mechanism: str
    """SASL mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."""
    username: str
    """Name of the user; for OAUTHBEARER, the client id."""
    password: str = field(repr=False)
    """Password; for OAUTHBEARER, the client secret."""
    token_url: str = ""
    """Address of the token endpoint, for OAUTHBEARER."""
    scope: str = ""
    """Scope of the tokens; "" for the endpoint's default."""
    extensions: tuple[tuple[str, str], ...] = ()
    """Names and values that accompany a token (SASL extensions, KIP-342)."""
    cache: TokenCache = field(default_factory=TokenCache, compare=False, repr=False)


def credentials_of(settings: Settings) -> Credentials | None:
    """Return Weir's credentials, with the password read from its file; None if Weir does not authenticate.
    Raises ConfigError.
    """
    given = {
        "upstream_sasl_mechanism": settings.upstream_sasl_mechanism,
        "upstream_sasl_username": settings.upstream_sasl_username,
        "upstream_sasl_password_file": settings.upstream_sasl_password_file,
    }
    missing = [key for key, value in given.items() if not value]
    if len(missing) == len(given):
        return None
    if missing:
        present = next(key for key, value in given.items() if value)
        raise ConfigError(f"{present} is set without {' and '.join(missing)}: set all three, or none")
    if "\0" in settings.upstream_sasl_username:
        raise ConfigError("upstream_sasl_username has a NUL character, which no mechanism can send")
    password = _password(Path(settings.upstream_sasl_password_file))
    url, mechanism = settings.upstream_sasl_token_url, settings.upstream_sasl_mechanism
    if (mechanism == "OAUTHBEARER") != bool(url):
        raise ConfigError("OAUTHBEARER and upstream_sasl_token_url need one another: set both, or none")
    if url and urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(f"upstream_sasl_token_url is {url!r}, must begin with https:// or http://")
    return Credentials(
        mechanism,
        settings.upstream_sasl_username,
        password,
        url,
        settings.upstream_sasl_scope,
        tuple(_extensions(settings.upstream_sasl_extensions)),
    )


def _extensions(text: str) -> Iterator[tuple[str, str]]:
    """Yield the names and values in `name=value,…`. Raises ConfigError for what RFC 7628 does not allow."""
    for part in filter(None, map(str.strip, text.split(","))):
        name, _, value = part.partition("=")
        if not re.fullmatch("[A-Za-z]+", name) or name == "auth" or not (value and value.isprintable()):
            raise ConfigError(f"upstream_sasl_extensions has {part!r}, must be name=value, name in letters")
        yield name, value


def _password(path: Path) -> str:
    """Return the text of a password file without its final line end. Raises ConfigError, whose text does not
    quote the password.
    """
    where = f"upstream_sasl_password_file {path}"
    try:
        password = read_text(path, PASSWORD_BYTES_MAX)
    except OSError as error:
        raise ConfigError(f"{where}: cannot read it: {error.strerror}") from None
    password = password.removesuffix("\n").removesuffix("\r")
    if not password:
        raise ConfigError(f"{where}: it is empty: write the password into it, and nothing else")
    if "\n" in password or "\0" in password:
        raise ConfigError(f"{where}: more than one line of text: write the password into it, nothing else")
    return password
