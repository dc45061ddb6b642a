"""Credentials of Weir's own connections to brokers. Clients' connections use the clients' credentials."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from proxy.config.config_error import ConfigError

if TYPE_CHECKING:
    from proxy.config.settings import Settings

PASSWORD_BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Credentials:
    """A SASL mechanism, a user, and a password that no `repr` shows."""

    mechanism: str
    """PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."""
    username: str
    password: str = field(repr=False)


def credentials_of(settings: Settings) -> Credentials | None:
    """Read the password; return None if Weir does not authenticate. Raises ConfigError."""
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
    return Credentials(settings.upstream_sasl_mechanism, settings.upstream_sasl_username, password)


def _password(path: Path) -> str:
    """Return the file's text without its final line end. Raises ConfigError, which does not quote the
    text.
    """
    where = f"upstream_sasl_password_file {path}"
    try:
        with path.open("rb") as file:
            content = file.read(PASSWORD_BYTES_MAX + 1)
        password = content.decode("utf-8")
    except OSError as error:
        raise ConfigError(f"{where}: cannot read it: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: not UTF-8: write the password as text, and nothing else") from None
    password = password.removesuffix("\n").removesuffix("\r")
    if not password:
        raise ConfigError(f"{where}: it is empty: write the password into it, and nothing else")
    if len(content) > PASSWORD_BYTES_MAX or "\n" in password or "\0" in password:
        raise ConfigError(f"{where}: more than one line of text: write the password into it, nothing else")
    return password
