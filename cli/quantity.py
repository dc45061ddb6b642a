"""Type of the options that are sizes or durations."""

from __future__ import annotations

from math import inf
from typing import Final

import click

from weir.quotas import units

METAVARS: Final = {"bytes": "SIZE", "s": "DURATION", "ms": "DURATION"}


class Quantity(click.ParamType[float]):
    """Type of an option whose value is a number in its own unit (bytes, s or ms), or has a unit: `30s`,
    `256KiB`. The value is an int if it is whole.
    """

    def __init__(
        self,
        unit: str,
        least: float | None = None,
        most: float | None = None,
        *,
        above: bool = False,
        whole: bool = False,
    ) -> None:
        """Accept values in `unit` from `least` to `most`; with `above`, only values greater than `least`;
        with `whole`, only whole numbers.

        A bound that is None does not limit the values. An option with `least` refuses inf and nan.
        """
        self.name = METAVARS[unit].lower()
        self._unit = unit
        self._least = least
        self._most = most
        self._above = above
        self._whole = whole

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return SIZE or DURATION, for the help text; click calls this method."""
        del param, ctx
        return METAVARS[self._unit]

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the quantity in the option's unit; click calls this method."""
        number = self._number(str(value), param, ctx)
        least, most = self._least, self._most
        too_small = least is not None and not (number > least if self._above else number >= least)
        if too_small or (most is not None and not number <= most) or (least is not None and number == inf):
            between = f"{'>' if self._above else '>='} {least}" + (f", <= {most}" if most is not None else "")
            self.fail(f"{value} is not in the range {between} ({self._unit})", param, ctx)
        if self._whole and number != int(number):
            self.fail(f"{value} is {number} {self._unit}, must be a whole number", param, ctx)
        return int(number) if self._whole else number

    def _number(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number in the option's text, converted to the option's unit. A text without unit may be
        any number that Python reads, such as -1 or nan: `convert` then rejects it with a message about the
        bounds.
        """
        for plain in (int, float):
            try:
                return plain(text)
            except ValueError:
                continue
        try:
            return units.parse(text, self._unit)
        except ValueError as error:
            self.fail(f"{text!r} is not {error}", param, ctx)
