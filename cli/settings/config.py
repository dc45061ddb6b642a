"""`weir config`: the settings in effect, a configuration file to begin with, and schemas for editors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click
import msgspec

from weir.cli.exits import CommandError
from weir.cli.quotas.show import clean, columns, echo_json
from weir.cli.settings.options import ENVIRONMENT_PREFIX, config_file_option, description_of, from_environment
from weir.cli.settings.schema import Schema, schema_of
from weir.cli.settings.sections import ESSENTIAL, SECTIONS
from weir.proxy.config import config
from weir.proxy.config.settings import ConfigError, Settings

STARTING_VALUES: Final = {"upstream": "localhost:9092", "quotas": "quotas.toml"}
"""Values in the file of `weir config --new` for keys without a useful default."""
HEAD: Final = """\
# Weir's configuration. Every line that begins with "#" and a key shows a default, or an example in its place.
# Check the file with `weir check --config FILE`; `weir config --config FILE` shows what is in effect.
"""


class Shown(msgspec.Struct):
    """JSON object for one setting in effect."""

    value: str | int | float | bool
    source: str
    """Source of the value: default, file or environment."""


class ConfigReport(msgspec.Struct):
    """The JSON object that `weir config --json` prints."""

    file: str | None
    """Path of the configuration file; null if no file is used."""
    settings: dict[str, Shown]
    """Settings in effect by key."""


@click.command(
    "config",
    epilog="""\b
Examples:
  weir config --new > weir.toml
  weir config --new --all | less
  weir config --config weir.toml
  weir config --config weir.toml --json | jq '.settings | map_values(select(.source != "default"))'
  weir config --schema quotas > quotas.schema.json
""",
)
@config_file_option("Weir's configuration; environment variables override it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--new", is_flag=True, help="Print a commented file to begin with instead.")
@click.option("--all", "whole", is_flag=True, help="With --new: all keys, not only those most people need.")
@click.option(
    "--schema",
    "file",
    type=click.Choice(Schema, case_sensitive=False),
    help="Print the JSON schema of a configuration file or quota file instead, for editors.",
)
def config_(config_file: Path | None, as_json: bool, new: bool, whole: bool, file: Schema | None) -> None:
    """Show every setting in effect, and its source: default, file or environment.

    Passwords are not shown: the settings have only the names of the files that hold them. An editor with a
    TOML language server uses a schema after the line `#:schema weir.schema.json` in the file.
    """
    asked = [name for name, given in (("--new", new), ("--schema", file), ("--json", as_json)) if given]
    if len(asked) > 1:
        raise click.UsageError(f"{' and '.join(asked)} exclude each other")
    if whole and not new:
        raise click.UsageError("--all needs --new")
    if new:
        click.echo("\n".join(template(whole=whole)))
    elif file is not None:
        click.echo(msgspec.json.format(msgspec.json.encode(schema_of(file))).decode())
    else:
        _show(config_file, as_json=as_json)


def template(*, whole: bool) -> Iterator[str]:
    """Yield the lines of a configuration file with a comment and a value for each key, by section: the keys
    that most people need, or with `whole` all. Only `upstream` is not commented out.
    """
    yield HEAD.rstrip("\n")
    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    for heading, names in SECTIONS.items():
        keys = [name for name in names if whole or name in ESSENTIAL]
        if keys:
            yield f"\n## {heading}"
        for key in keys:
            value = STARTING_VALUES.get(key, fields[key].default)
            mark = "" if key == "upstream" else "# "
            yield f"\n# {description_of(fields[key])}\n{mark}{key} = {_toml(value)}"


def _show(config_file: Path | None, *, as_json: bool) -> None:
    given = from_environment()
    try:
        settings = config.load(config_file, given).settings
        in_file = config.read(config_file, given).in_file
    except ConfigError as error:
        raise CommandError(str(error)) from None
    shown = {
        key: Shown(getattr(settings, key), _source(key, in_file, given)) for key in Settings.__struct_fields__
    }
    if as_json:
        echo_json(ConfigReport(str(config_file) if config_file is not None else None, shown))
    else:
        _print(shown)


def _source(key: str, in_file: frozenset[str], given: Mapping[str, object]) -> str:
    """Return the source of the setting `key`: environment, file or default."""
    if given[key] is not None:
        return f"environment ({ENVIRONMENT_PREFIX}{key.upper()})"
    return "file" if key in in_file else "default"


def _print(shown: dict[str, Shown]) -> None:
    """Print the settings as TOML, with the sources as comments."""
    rows = [(f"{key} = {clean(_toml(one.value))}", f"# {one.source}") for key, one in shown.items()]
    for line, one in zip(columns(rows), shown.values(), strict=True):
        click.echo(click.style(line, dim=one.source == "default" or None))


def _toml(value: object) -> str:
    """Return a setting as TOML; a JSON string is a basic string of TOML."""
    return json.dumps(value, ensure_ascii=False)
