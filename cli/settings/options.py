"""Make command options from the keys of the configuration, so that names and descriptions are written
once: few keys have an option of their own, `--set KEY=VALUE` has all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec
from click.core import ParameterSource

from weir.cli.quantity import Quantity
from weir.proxy.addresses import Address
from weir.proxy.config.config import Config, ConfigError, Settings
from weir.proxy.config.settings import FILES, KEY_PAIRS
from weir.quotas.units import unit_of

F = TypeVar("F", bound=Callable[..., object])

ENVIRONMENT_PREFIX: Final = "WEIR_"
"""Beginning of the environment variables that set keys, before the key in capitals: WEIR_BROKER_PORTS."""


def config_file_option(help_text: str) -> Callable[[F], F]:
    """Return a decorator that adds the option `--config FILE`, or its environment variable WEIR_CONFIG, to a
    command. The command gets the path as `config_file`; None without the option.
    """
    return click.option(
        "--config",
        "config_file",
        metavar="FILE",
        type=click.Path(path_type=Path),
        envvar=f"{ENVIRONMENT_PREFIX}CONFIG",
        help=help_text,
    )


config_option: Final = config_file_option(
    "TOML file with the same keys, in snake_case; options and environment variables override it."
)

ADDRESSES: Final = ("upstream", "listen", "admin", "replication_listen")
"""Keys whose values are addresses."""
UPSTREAM_VARIABLE: Final = f"{ENVIRONMENT_PREFIX}UPSTREAM"
"""Environment variable of `--upstream`, in every command that asks a cluster."""


FLAGS: Final = (
    "upstream",
    "listen",
    "broker_ports",
    "quotas",
    "quota_admins",
    "quota_mode",
    "admin",
    "admin_token_file",
    "log_level",
)
"""Keys with an option of their own in `weir run` and `weir check`; `--set` has all keys."""


class SettingOption(click.Option):
    """A value of a key, in an option, in `--set` or in the environment; error messages say which."""

    is_set = False
    """True for a value of `--set`."""

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return the name that an error message gives to the value. click calls this method."""
        if ctx is not None and ctx.get_parameter_source(str(self.name)) is ParameterSource.ENVIRONMENT:
            return f"environment variable {self.envvar}"
        return f"--set {self.name}" if self.is_set else super().get_error_hint(ctx)


class _SetOption(SettingOption):
    is_set = True


class _Sets(click.Option):
    """The option `--set KEY=VALUE`."""

    def __init__(
        self, names: Sequence[str], fields: Sequence[msgspec.structs.FieldInfo], **attributes: Any
    ) -> None:
        super().__init__(names, **attributes)
        self.defaults = {field.name: field.default for field in fields}
        """Keys that the option can set, and their defaults."""


def setting_options(*flags: str, prefixes: tuple[str, ...] = ("",)) -> Callable[[F], F]:
    """Return a decorator that adds an option for each key in `flags`, and `--set KEY=VALUE` for all keys that
    begin with one of `prefixes`. The command gets the values of these keys as keyword arguments, also those
    of environment variables; None for keys without a value.
    """
    fields = [field for field in msgspec.structs.fields(Settings) if field.name.startswith(prefixes)]

    shown = ", ".join(f"{prefix}..." if prefix.endswith("_") else prefix for prefix in prefixes)
    keys = f"A key ({shown})" if shown else "Any key"

    def decorate(command: F) -> F:
        @wraps(command)
        def with_settings(*arguments: object, sets: tuple[str, ...], **others: object) -> object:
            context = click.get_current_context()
            options = _given(fields, sets)
            for flag in flags:
                value = others.pop(flag)
                if context.get_parameter_source(flag) is ParameterSource.COMMANDLINE:
                    options[flag] = value
            return command(*arguments, **others, **options)

        decorated: Callable[..., object] = click.option(
            "--set",
            "sets",
            cls=_Sets,
            fields=fields,
            metavar="KEY=VALUE",
            multiple=True,
            help=f"{keys} of the configuration file. May be repeated.",
        )(with_settings)
        for field in reversed(fields):
            if field.name in flags:
                name = f"--{field.name.replace('_', '-')}"
                decorated = click.option(name, cls=SettingOption, **_attributes(field))(decorated)
        return decorated  # type: ignore[return-value]  # with other parameters

    return decorate


def _given(fields: Sequence[msgspec.structs.FieldInfo], sets: Iterable[str]) -> dict[str, object]:
    """Return the values in `--set` and, for other keys, in environment variables; None for keys without one.
    Raises click.UsageError.
    """
    options = (_SetOption([f"--{field.name}"], **_attributes(field)) for field in fields)
    command = click.Command("set", params=list(options))
    known = {str(parameter.name): parameter for parameter in command.params}
    arguments = []
    for text in sets:
        key, sign, value = text.partition("=")
        if not sign:
            raise click.UsageError(f"--set {text}: must be KEY=VALUE")
        if key not in known:
            if key in Settings.__struct_fields__:
                raise click.UsageError(f"--set {key}: this command does not read it")
            advice = "".join(f"; did you mean {close}?" for close in get_close_matches(key, known, n=1))
            raise click.UsageError(f"--set {key}: no such key{advice}")
        if not value and known[key].type is click.BOOL:  # click takes it for false
            raise click.UsageError(f"--set {key}: must be true or false")
        arguments += [known[key].opts[0], value]
    return command.make_context(click.get_current_context().command_path, arguments).params


def set_instead(option: str, command: click.Command) -> str | None:
    """Return the `--set KEY=VALUE` that stands for an option of a key, such as `--usage`, which `command`
    does not have; None if `command` cannot set such a key.
    """
    key = option.removeprefix("--").replace("-", "_")
    for sets in command.params:
        if isinstance(sets, _Sets):
            if key in sets.defaults:
                return f"--set {key}=VALUE"
            switch = key.removeprefix("no_")
            return f"--set {switch}=false" if isinstance(sets.defaults.get(switch), bool) else None
    return None


def from_environment() -> dict[str, object]:
    """Return the settings in environment variables: key → value, None for those without one. Raises
    click.UsageError.
    """
    return _given(msgspec.structs.fields(Settings), ())


def broker_options(help_text: str, *others: str) -> Callable[[F], F]:
    """Return a decorator that adds `--upstream`, with this help, and `--set` for keys of Weir's own
    connections to brokers, and `others`. The command passes the values to `config.load`, and gets the
    broker of `one_broker`.
    """

    def decorate(command: F) -> F:
        upstream = click.option(
            "--upstream", cls=SettingOption, metavar="HOST:PORT", envvar=UPSTREAM_VARIABLE, help=help_text
        )
        return upstream(setting_options(prefixes=("upstream_", *others))(command))

    return decorate


def one_broker(config: Config) -> Address:
    """Return the only broker that `upstream` names. Raises ConfigError if it names several."""
    if len(config.upstream) != 1:
        raise ConfigError(
            f"upstream is {config.settings.upstream!r}, one broker only: choose one with --upstream"
        )
    return config.upstream[0]


def description_of(field: msgspec.structs.FieldInfo) -> str:
    """Return the description of a key of the configuration, as help and templates show it."""
    kind = msgspec.inspect.type_info(field.type)
    schema = kind.extra_json_schema if isinstance(kind, msgspec.inspect.Metadata) else None
    return str((schema or {}).get("description", ""))


def _attributes(field: msgspec.structs.FieldInfo) -> dict[str, Any]:
    """Return the keyword arguments of the option of a key."""
    kind, description = msgspec.inspect.type_info(field.type), description_of(field)
    if isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    default = str(field.default)
    return {
        "type": _click_type(field.name, kind),
        "metavar": _metavar(field.name),
        "default": None,
        "envvar": f"{ENVIRONMENT_PREFIX}{field.name.upper()}",
        "help": f"{description}  [default: {default}]" if default else description,
    }


def _metavar(name: str) -> str | None:
    """Return the word for the option's value in help; None for that of the option's type."""
    if name in KEY_PAIRS:
        return "FILE[,FILE]"
    if name in FILES:
        return "DIR" if name.endswith("_dir") else "FILE"
    return "HOST:PORT" if name in ADDRESSES else None


def _click_type(name: str, kind: msgspec.inspect.Type) -> click.ParamType[object]:
    if (unit := unit_of(name)) is not None:
        return Quantity(unit)
    if name == "workers":  # a number, or auto
        return click.STRING
    match kind:
        case msgspec.inspect.LiteralType(values=values):
            return click.Choice([str(value) for value in values])
        case msgspec.inspect.IntType():
            return click.INT
        case msgspec.inspect.FloatType():
            return click.FLOAT
        case msgspec.inspect.BoolType():
            return click.BOOL
        case _:
            return click.STRING
