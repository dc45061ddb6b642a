"""Commands of a group whose modules are imported when the commands are run, or listed in a help.

All commands together import all of Weir, which takes longer than most commands run.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import NamedTuple

import click


class LazyCommand(NamedTuple):
    """A command whose module may not be imported yet."""

    place: str
    """Module and variable of the command: `package.module:variable`."""
    short_help: str
    """Line of the group's help. click would cut off a first sentence that does not fit into 80 columns."""

    def load(self) -> click.Command:
        module, _, variable = self.place.partition(":")
        thresholds = gc.get_threshold()
        gc.set_threshold(*thresholds[:2], 2**31 - 1)  # modules live on; a look at all of them takes 30 ms
        try:
            command = getattr(import_module(module), variable)
        finally:
            gc.set_threshold(*thresholds)
        assert isinstance(command, click.Command), self.place
        command.short_help = self.short_help
        return command


class LazyCommands(MutableMapping[str, click.Command]):
    """The argument `commands` of a `click.Group`."""

    def __init__(self, commands: Mapping[str, LazyCommand]) -> None:
        self._commands: dict[str, click.Command | LazyCommand] = {**commands}

    def __getitem__(self, name: str) -> click.Command:
        command = self._commands[name]
        if isinstance(command, LazyCommand):
            command = self._commands[name] = command.load()
        return command

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)
