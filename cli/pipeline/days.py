"""The option `--days FROM..TO` of all jobs of `weir pipeline`."""

from __future__ import annotations

from datetime import date

import click


class Days(click.ParamType[tuple[date, date]]):
    """Type of the option --days: a range of days (UTC) such as `2026-11-01..2026-11-07`, or one day."""

    name = "days"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[date, date]:
        """Return (first day, last day) of the option's text `value`; click calls this method."""
        first, dots, last = str(value).partition("..")
        try:
            days = date.fromisoformat(first), date.fromisoformat(last if dots else first)
        except ValueError:
            self.fail(f"{value!r} is not FROM..TO, such as 2026-11-01..2026-11-07", param, ctx)
        if days[0] > days[1]:
            self.fail(f"{value!r} ends before it begins: exchange the two", param, ctx)
        return days
