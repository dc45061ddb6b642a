"""Make command options from the keys of the configuration, so that names and descriptions are written
once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, TypeVar

import click
import msgspec
from click.core import ParameterSource

from weir.cli.quantity import Quantity
from weir.proxy.addresses import Address
from weir.proxy.config.config import Config, ConfigError, Settings
from weir.proxy.config.settings import FILES
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


class SettingOption(click.Option):
    """A command option made from a key of the configuration. If its value comes from the environment, error
    messages name the environment variable.
    """

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """Return the name that an error message gives to the option: its environment variable if the value
        comes from there, else the option itself. click calls this method.
        """
        if ctx is not None and ctx.get_parameter_source(str(self.name)) is ParameterSource.ENVIRONMENT:
            return f"environment variable {self.envvar}"
        return super().get_error_hint(ctx)


def options_of_settings(prefix: str = "", *, but: Collection[str] = ()) -> Callable[[F], F]:
    """Return a decorator that adds an option to a command for every configuration key that begins with
    `prefix`, except the keys in `but`. The command gets None for an option that the user does not give.
    """

    def decorate(command: F) -> F:
        for field in reversed(msgspec.structs.fields(Settings)):
            if field.name.startswith(prefix) and field.name not in but:
                command = _option(field)(command)
        return command

    return decorate


def from_environment() -> dict[str, object]:
    """Return the settings in environment variables: key → value, None for those without one. Raises
    click.UsageError.
    """

    @click.command()
    @options_of_settings()
    def settings(**_given: object) -> None:
        """Take the options of `weir run`; none is given."""

    return settings.make_context("weir run", []).params


def broker_options(help_text: str) -> Callable[[F], F]:
    """Return a decorator that adds `--upstream`, with this help, and the options of Weir's own connections to
    brokers. The command passes the values to `config.load`, and gets the broker of `one_broker`.
    """

    def decorate(command: F) -> F:
        upstream = click.option(
            "--upstream", cls=SettingOption, metavar="HOST:PORT", envvar=UPSTREAM_VARIABLE, help=help_text
        )
        return upstream(options_of_settings("upstream_")(command))

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


def _option(field: msgspec.structs.FieldInfo) -> Callable[[F], F]:
    kind, description = msgspec.inspect.type_info(field.type), description_of(field)
    if isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    name = field.name.replace("_", "-")
    if isinstance(kind, msgspec.inspect.BoolType):
        default = name if field.default else f"no-{name}"
        name = f"{name}/--no-{name}"
    else:
        default = str(field.default)
    return click.option(
        f"--{name}",
        field.name,
        cls=SettingOption,
        type=_click_type(field.name, kind),
        metavar=_metavar(field.name),
        default=None,
        envvar=f"{ENVIRONMENT_PREFIX}{field.name.upper()}",
        help=f"{description}  [default: {default}]" if default else description,
    )


def _metavar(name: str) -> str | None:
    """Return the word for the option's value in help; None for that of the option's type."""
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
