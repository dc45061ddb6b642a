"""Ask a running Weir for a client's request time by API, for `weir quotas explain`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import click
import msgspec

from weir.cli.admin_endpoint import AdminError, EndpointAccess, admin_address, ask
from weir.cli.exits import CommandError
from weir.cli.quotas.show import SHADOW, clean, columns
from weir.proxy.admin.request_time import CLIENT_ID, PATH, USER, BudgetTime, RequestTimeReport
from weir.proxy.config.config import Settings

admin_option: Final = click.option(
    "--admin",
    metavar="HOST:PORT",
    help="The admin endpoint of a running Weir, for request time and storage. [default: that of --config]",
)


class RequestTimeJson(msgspec.Struct):
    """JSON object with a client's request time, as a running Weir reports it."""

    admin: str
    """Address of the admin endpoint that answered."""
    budgets: list[BudgetTime]


class Spent(NamedTuple):
    """A client's request time by API, or the reason why it is unknown."""

    found: RequestTimeJson | None
    why_not: str = ""


def spent(admin: str | None, settings: Settings, access: EndpointAccess, user: str, client_id: str) -> Spent:
    """Ask a running Weir for a client's request time. The endpoint `admin` must answer; without it the
    endpoint in `settings` is tried, which may be on another machine. Raises CommandError if `admin` does not
    answer.
    """
    address = admin_address(admin, settings)
    if address is None:
        return Spent(None, "give --admin HOST:PORT of a running Weir")
    try:
        report = ask(address, PATH, {USER: user, CLIENT_ID: client_id}, RequestTimeReport, access)
    except AdminError as error:
        if admin is not None:
            raise CommandError(clean(error)) from None
        return Spent(None, f"{clean(error)}; give --admin HOST:PORT of a running Weir")
    return Spent(RequestTimeJson(str(address), report.budgets))


def lines(of: Spent, *, is_limited: bool) -> Iterator[str]:
    """Yield lines that show the client's request time by API. If the time is unknown and the client has a
    request quota, yield advice how to get the time.
    """
    if of.found is None:
        if is_limited:
            yield click.style(f"  which APIs spend it: {of.why_not}", dim=True)
        return
    where = clean(of.found.admin)
    if not of.found.budgets:
        yield f"  no request time charged yet, says Weir at {where}"
        return
    yield f"  request time so far, as Weir at {where} estimates it:"
    for budget in of.found.budgets:
        yield from _budget(budget)


def _budget(budget: BudgetTime) -> Iterator[str]:
    shadow = ", in shadow" if budget.mode == SHADOW else ""
    limit = "" if budget.limit is None else f" of {budget.limit:g}"
    waits = ""
    if budget.throttles:
        would = "would have been " if shadow else ""
        times = "once" if budget.throttles == 1 else f"{budget.throttles} times"
        waits = f", {would}throttled {times}, {budget.throttle_seconds:.1f} s"
    unit, factor = ("s", 1) if budget.seconds >= 1 else ("ms", 1000)

    def time(seconds: float) -> str:
        return f"{factor * seconds:.3f} {unit}"

    yield clean(
        f"    broker {budget.broker}{shadow}: {time(budget.seconds)}, "
        f"now {budget.rate:.2f}{limit} % of a thread{waits}"
    )
    rows = [(api.api, time(api.seconds), f"{api.percent:.1f} %") for api in budget.apis]
    widest = [max((len(row[column]) for row in rows), default=0) for column in (1, 2)]
    for line in columns([(row[0], row[1].rjust(widest[0]), row[2].rjust(widest[1])) for row in rows]):
        yield clean(f"      {line}")
