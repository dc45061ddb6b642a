"""`weir man`: the manual page, made from the help of all commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import click

from weir.cli.exits import DONE, FAILED, INCOMPLETE, USAGE
from weir.cli.settings.sections import ENVIRONMENT_HELP
from weir.proxy.build import VERSION

EXITS: Final = {
    DONE: "Done, or stopped as asked.",
    FAILED: "A negative result, such as a missing quota; or a failure of the proxy.",
    USAGE: "Wrong usage or configuration, or surroundings in which Weir cannot start.",
    INCOMPLETE: "Done, except for listed items.",
}
"""Exit codes of all commands, with their meaning for the manual page."""
_SPECIAL: Final = {"\\": "\\e", "-": "\\-", "'": "\\(aq"}


@click.command()
@click.pass_context
def man(context: click.Context) -> None:
    """Print the manual page, for man(1): every command with every option."""
    root = context.find_root()
    click.echo("\n".join(page(root)))


def page(root: click.Context) -> Iterator[str]:
    """Yield the lines of the manual page, in roff, of the command line whose context is `root`."""
    command = root.command
    yield f'.TH WEIR 1 "" "weir {_roff(VERSION)}" "Weir"'
    yield from (".SH NAME", f"weir \\- {_roff(_sentence(command).rstrip('.'))}")
    yield from (".SH SYNOPSIS", ".B weir", "\\fICOMMAND\\fR [\\fIOPTION\\fR]...")
    yield from (".SH ENVIRONMENT", _roff(ENVIRONMENT_HELP))
    yield from (".SH COMMANDS",)
    for context in commands(root):
        yield from _section(context)
    yield ".SH EXIT STATUS"
    for code, meaning in EXITS.items():
        yield from (".TP", f".B {code}", _roff(meaning))


def commands(context: click.Context) -> Iterator[click.Context]:
    """Yield the contexts of all commands that are no groups, in the order of the help."""
    command = context.command
    if not isinstance(command, click.Group):
        yield context
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        if inner is not None and not inner.hidden:
            yield from commands(type(context)(inner, info_name=name, parent=context))


def _section(context: click.Context) -> Iterator[str]:
    """Yield the part of the manual page about one command."""
    command = context.command
    usage = " ".join(command.collect_usage_pieces(context))
    yield f".SS {_roff(context.command_path)}"
    yield from (f".B {_roff(context.command_path)}", _roff(usage))
    for paragraph in (command.help or "").split("\n\n"):
        yield from (".PP", _roff(" ".join(paragraph.split())))
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record is not None:
            names, text = record
            variable = parameter.envvar
            mentioned = f" Environment variable: {variable}." if isinstance(variable, str) else ""
            yield from (".TP", f".B {_roff(names)}", _roff(text.rstrip() + mentioned))
    if command.epilog:
        examples = re.sub(r"^\x08\n", "", command.epilog, flags=re.MULTILINE)
        yield from (".PP", ".nf", *map(_roff, examples.rstrip().splitlines()), ".fi")


def _sentence(command: click.Command) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


def _roff(text: str) -> str:
    """Return a line of text for roff: special characters escaped, no request at its beginning."""
    escaped = "".join(_SPECIAL.get(char, char) for char in text)
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped
