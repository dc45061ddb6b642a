"""`weir check`: every mistake of a configuration and its files, without a broker."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sized
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import click
import msgspec

from weir.cli.exits import USAGE
from weir.cli.quotas.show import clean, echo_json
from weir.cli.settings.options import ENVIRONMENT_PREFIX, FLAGS, config_option, setting_options
from weir.proxy.config import config
from weir.proxy.config.settings import IN_TOPIC, ConfigError, ConfigMistakesError, Settings, store_of
from weir.proxy.files import QUOTAS_BYTES_MAX, read_text
from weir.quotas.table import quota_check

EXAMPLES: Final = """\b
Examples:
  weir check --config weir.toml
  weir check --quotas quotas.toml
  weir check --config weir.toml --json | jq -r '.mistakes[]'
  weir check --config weir.toml --running
"""


class CheckReport(msgspec.Struct):
    """The JSON object that `weir check --json` prints."""

    mistakes: list[str]
    """Reasons for which `weir run` would not start with these settings and files, each as one line."""
    warnings: list[str]
    """Settings and quotas that are accepted, but probably not meant, each as one line."""


@click.command(epilog=EXAMPLES)
@config_option
@setting_options(*FLAGS)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option(
    "--running", "is_running", is_flag=True, help="Ask this host's Weir whether it is well (/healthz)."
)
def check(config_file: Path | None, as_json: bool, is_running: bool, **options: object) -> None:
    """Check the settings, the quota file and the TLS files, without a broker.

    All mistakes are printed, and warnings about quotas that match no client. Given --quotas alone, only that
    file is checked. Exit code 0 without mistakes, also with warnings; 2 with mistakes.

    With --running, check only that the Weir with these settings runs, for the health check of a container.
    Exit code 0 if it is well, 1 if not, 2 if the settings have no admin endpoint.
    """
    if is_running:
        from weir.cli.health import check_health  # not needed by the other checks

        return check_health(config_file, options)
    report = CheckReport([], list(_misspelt(os.environ)))
    inspect(config_file, options, report)
    if as_json:
        echo_json(report)
    else:
        _show(report, config_file)
    if report.mistakes:
        raise click.exceptions.Exit(USAGE)
    return None


def inspect(config_file: Path | None, options: Mapping[str, object], report: CheckReport) -> None:
    """Check the settings and the files that they name; add the findings to `report`. If the quota file is the
    only setting, check that file alone.
    """
    given = {key: str(value) for key, value in options.items() if value is not None}
    if config_file is None and given.keys() == {"quotas"} and store_of(given["quotas"]) == "file":
        _inspect_quotas(Path(given["quotas"]), report)
        return
    try:
        settings = config.read(config_file, options).settings
    except ConfigError as error:  # the file is no configuration: nothing else can be checked
        report.mistakes.append(str(error))
        return
    try:
        checked: config.Config | None = config.load(config_file, options)
    except ConfigMistakesError as error:
        checked = None
        report.mistakes.extend(error.mistakes)
    if checked is not None:
        report.mistakes.extend(_of_checked(checked))
    if settings.quotas and settings.quota_store == "file":
        has_login = bool(settings.upstream_sasl_mechanism or settings.upstream_cert)
        _inspect_quotas(Path(settings.quotas), report, has_login=has_login)
    report.mistakes.extend(_of_directories(settings))


def _of_checked(checked: config.Config) -> Iterator[str]:
    """Yield the mistakes that otherwise show only when Weir starts: TLS files that cannot be used."""
    for files in checked.tls.files:
        try:
            files.load()
        except ConfigError as error:
            yield str(error)


def _inspect_quotas(path: Path, report: CheckReport, *, has_login: bool = True) -> None:
    try:
        found = quota_check.check(read_text(path, QUOTAS_BYTES_MAX))
    except OSError as error:
        report.mistakes.append(f"{path}: cannot read the quota file: {error.strerror}")
    else:
        report.mistakes.extend(f"{path}: {text}" for text in found.mistakes)
        warnings = found.warnings if has_login else [*found.warnings, *found.of_storage]
        report.warnings.extend(f"{path}: {text}" for text in warnings)


def _of_directories(settings: Settings) -> Iterator[str]:
    """Yield the reasons for which directories can be neither used nor created."""
    usage = "" if settings.usage.startswith(IN_TOPIC) else settings.usage
    for key, value in (("state_dir", settings.state_dir), ("usage", usage)):
        if value:
            directory = Path(value)
            existing = next(path for path in (directory, *directory.absolute().parents) if path.exists())
            if not existing.is_dir():
                yield f"{key} {directory}: {existing} is no directory"
            elif not os.access(existing, os.W_OK | os.X_OK):
                yield f"{key} {directory}: {existing} cannot be written by this user"


def _misspelt(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each environment variable whose name is almost one that Weir reads. Other names that
    begin with WEIR_ are no mistakes: Kubernetes sets some itself, such as WEIR_SERVICE_HOST.
    """
    keys = Settings.__struct_fields__
    for name in environment:
        key = name.removeprefix(ENVIRONMENT_PREFIX).lower()
        if key == name.lower() or key in keys:
            continue
        close = get_close_matches(key, keys, n=1, cutoff=0.9)
        if close:
            wanted = f"{ENVIRONMENT_PREFIX}{close[0].upper()}"
            yield f"the environment variable {name} has no effect: did you mean {wanted}?"


def _counted(texts: Sized, noun: str) -> str:
    return f"{len(texts)} {noun}{'' if len(texts) == 1 else 's'}"


def _show(report: CheckReport, config_file: Path | None) -> None:
    for kind, colour, texts in (
        ("mistake", "red", report.mistakes),
        ("warning", "yellow", report.warnings),
    ):
        for text in texts:
            click.echo(f"{click.style(kind, fg=colour)}: {clean(text)}")
    counts = f"{_counted(report.mistakes, 'mistake')}, {_counted(report.warnings, 'warning')}"
    click.echo(f"{config_file or 'options'}: {counts}", err=True)
