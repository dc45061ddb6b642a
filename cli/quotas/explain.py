"""`weir quotas explain`: the quota that applies to a client, why others do not apply, and who shares its
budget.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click
import msgspec

from weir.cli.admin_endpoint import access_of, access_options
from weir.cli.quotas.entity import address, check_user
from weir.cli.quotas.request_time import RequestTimeJson, Spent, admin_option, lines, spent
from weir.cli.quotas.shared_usage import SharedUsageJson, shared_usage
from weir.cli.quotas.shared_usage import lines as shared_lines
from weir.cli.quotas.show import (
    ENFORCED,
    SHADOW,
    EntityJson,
    clean,
    columns,
    echo_json,
    entity_json,
    number,
    told,
)
from weir.cli.quotas.source import QuotaSource, json_option, source_options
from weir.cli.quotas.storage_over import exceeded, problems
from weir.cli.quotas.storage_over import lines as storage_lines
from weir.proxy.config.settings import Settings
from weir.quotas.table.bounded_names import EMPTY
from weir.quotas.table.ends import in_force_at
from weir.quotas.table.explain import Explanation, QuotaExplanation, Step, Verdict
from weir.quotas.table.explain import explain as explained
from weir.quotas.table.limits import Limit
from weir.quotas.table.options import Pacing
from weir.quotas.table.quota_kind import KINDS
from weir.quotas.table.quota_table import QuotaKey
from weir.quotas.table.times import now_utc

EXAMPLES: Final = """\b
Examples:
  weir quotas explain --config weir.toml --user alice --client-id app
  weir quotas explain --quotas quotas.toml --client-id app --topic logs --ip 10.0.0.7
  weir quotas explain --config weir.toml --user alice --admin weir-1:9644
  weir quotas explain --config weir.toml --user alice --json | jq '.charges[] | {key, limit, shared_by}'
"""
COLOURS: Final = {Verdict.WINS: "green", Verdict.COUNTED: "yellow"}


class StepJson(msgspec.Struct):
    """JSON object for one candidate for the limit of a client: an entry that Weir considered, or a level
    (such as user) that has no entry.
    """

    who: str
    entity: EntityJson | None
    value: int | float | None
    mode: str | None
    verdict: str
    """Result for the entry: `wins`; `counted`, a shadow entry that would win if it were enforced; `outranked`
    by an entry of higher precedence; `not meant` for this client, because it has no client-id; `ended`; or
    `no entry`, if this level has no entry for the client.
    """
    reason: str


class ChargeJson(msgspec.Struct, omit_defaults=True):
    """JSON object that explains one quota of a client: its limit, the clients that share the budget, and the
    entries considered.
    """

    key: str
    subject: str
    """Kind of thing that the quota limits: client, topic or ip."""
    limit: int | float | None
    shared_by: str
    shadow: int | float | None
    shadow_shared_by: str
    steps: list[StepJson]
    pacing: str | None = None
    """Pacing of the limit, kafka or smooth, as in the quota file; only for byte rates."""
    scope: str | None = None
    """Scope of the limit, broker or cluster, as in the quota file; only for byte rates and request time."""
    shadow_pacing: str | None = None
    shadow_scope: str | None = None
    decides: str = ""
    """Reason why this limit is the first of the limits under this key to make the client wait; left out for
    the others.
    """
    shared_over: str | None = None
    """Topic over which other Weirs share the budgets (`usage_share_topic`); left out if they do not."""
    applies_now: bool | None = None
    """True while a storage budget is over, so that its `over_byte_rate` applies; left out for other keys, and
    if no running Weir was asked, or none answered.
    """


class ExplainReport(msgspec.Struct):
    """The JSON object that `weir quotas explain --json` prints."""

    source: str
    user: str
    client_id: str
    taken_as: str
    ip: str | None
    topic: str | None
    charges: list[ChargeJson]
    request_time: RequestTimeJson | None
    """The client's request time by API; null if no running Weir was asked, or none answered."""
    shared_usage: SharedUsageJson | None = None
    """Use of the quotas that several Weirs share; null if usage is not shared, or no Weir answered."""


@click.command(epilog=EXAMPLES)
@source_options
@click.option(
    "--user",
    metavar="NAME",
    default="ANONYMOUS",
    show_default=True,
    help="The client's principal, without User:.",
)
@click.option("--client-id", metavar="NAME", default="", help="Its client-id. [default: none]")
@click.option("--ip", metavar="ADDRESS", help="Also explain the quotas of its connections from this address.")
@click.option("--topic", metavar="NAME", help="Also explain the quotas of this topic.")
@click.option("--all", "show_all", is_flag=True, help="Also list levels without an entry, as --json does.")
@admin_option
@access_options
@json_option
def explain(
    source: QuotaSource,
    user: str,
    client_id: str,
    ip: str | None,
    topic: str | None,
    admin: str | None,
    token_file: Path | None,
    show_all: bool,
    as_json: bool,
) -> None:
    """Show for each quota which entry applies to a client, why the others do not, and who shares the budget.

    A running Weir also tells which APIs the client's request time went to, what other Weirs have reported,
    and which storage budgets are over. The settings quota_mode, quota_pacing, empty_client_id,
    usage_share_topic and admin count, if --config is given.
    """
    check_user(user)
    settings = source.settings
    table = source.load().paced(Pacing(settings.quota_pacing))
    try:
        found = explained(
            in_force_at(table, now_utc()).in_shadow() if settings.quota_mode == "shadow" else table,
            user,
            client_id,
            ip=address(ip),
            topic=topic,
            unnamed=EMPTY if settings.empty_client_id == "default" else "",
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    access = access_of(admin, token_file, settings)
    time = spent(admin, settings, access, found.user, found.client_id)
    shared = None
    if any(_shared_over(charge, charge.limit or charge.shadow, settings) for charge in found.charges):
        shared = shared_usage(admin, settings, access, found.user, found.taken_as)
    has_storage = any(charge.key is QuotaKey.OVER_BYTE_RATE for charge in found.charges)
    told_problems = problems(admin, settings, access) if has_storage else None
    if as_json:
        echo_json(_report(source, found, time, shared, told_problems))
    else:
        _show(found, time, shared, told_problems, settings, show_all=show_all)
        source.warn()


def _show(
    found: Explanation,
    time: Spent,
    shared: SharedUsageJson | None,
    told_problems: list[str] | None,
    settings: Settings,
    *,
    show_all: bool,
) -> None:
    client_id = f"client-id {found.client_id}" if found.client_id else "no client-id"
    if found.taken_as != found.client_id:
        client_id += f" (taken as {found.taken_as})"
    click.echo(clean(f"user {found.user}, {client_id}"))
    for charge in found.charges:
        click.echo()
        for line in _lines(charge, settings, show_all=show_all):
            click.echo(line)
        for line in storage_lines(charge, told_problems):
            click.echo(line)
        if charge.subject == "client":
            for line in shared_lines(shared, charge.key):
                click.echo(line)
        if KINDS[charge.key].unit == "percent":
            for line in lines(time, is_limited=charge.limit is not None or charge.shadow is not None):
                click.echo(line)


def _lines(charge: QuotaExplanation, settings: Settings, *, show_all: bool) -> list[str]:
    what = charge.key.value if charge.subject == "client" else f"{charge.key.value} of the {charge.subject}"
    none = "no limit" if KINDS[charge.key].floor_of is None else "no floor"
    limit = told(charge.key, charge.limit.value) if charge.limit is not None else none
    lines = [click.style(f"{clean(what)}: {limit}", bold=True)]
    if charge.limit is not None:
        lines.append(f"  shared by {clean(charge.shared_by)}")
        lines += [f"  decides: {charge.decides}"] if charge.decides else []
        lines += _pacing(charge, charge.limit)
        lines += _sharing(charge, charge.limit, settings)
    if charge.shadow is not None:
        lines.append(f"  in shadow: {told(charge.key, charge.shadow.value)}")
        lines.append(f"  shared by {clean(charge.shadow_shared_by)}")
        lines += _pacing(charge, charge.shadow)
        lines += _sharing(charge, charge.shadow, settings)
    steps = [step for step in charge.steps if show_all or step.verdict is not Verdict.NO_ENTRY]
    if not steps:
        return [*lines, click.style("    no entry at any level", dim=True)]
    rows = [(clean(step.who), _value(step), clean(step.reason)) for step in steps]
    return lines + [
        f"    {click.style(line, fg=COLOURS.get(step.verdict), dim=True if step.entity is None else None)}"
        for step, line in zip(steps, columns(rows), strict=True)
    ]


def _pacing(charge: QuotaExplanation, limit: Limit) -> list[str]:
    return ["  pacing: smooth"] if charge.is_paced and limit.pacing is Pacing.SMOOTH else []


def _sharing(charge: QuotaExplanation, limit: Limit, settings: Settings) -> list[str]:
    topic = _shared_over(charge, limit, settings)
    return [f"  and by clients of other Weirs, over the topic {topic}"] if topic else []


def _shared_over(charge: QuotaExplanation, limit: Limit | None, settings: Settings) -> str | None:
    """Return the topic over which several Weirs share the budget of this limit; None if they do not."""
    if limit is None or charge.subject != "client":
        return None
    return settings.usage_share_topic or None


def _value(step: Step) -> str:
    return "-" if step.value is None else str(number(step.value))


def _report(
    source: QuotaSource,
    found: Explanation,
    time: Spent,
    shared: SharedUsageJson | None,
    told_problems: list[str] | None,
) -> ExplainReport:
    return ExplainReport(
        source.name,
        found.user,
        found.client_id,
        found.taken_as,
        found.ip,
        found.topic,
        [
            ChargeJson(
                charge.key.value,
                charge.subject,
                number(charge.limit.value) if charge.limit is not None else None,
                charge.shared_by,
                number(charge.shadow.value) if charge.shadow is not None else None,
                charge.shadow_shared_by,
                [_step(step) for step in charge.steps],
                *_options(charge, charge.limit),
                *_options(charge, charge.shadow),
                charge.decides,
                _shared_over(charge, charge.limit or charge.shadow, source.settings),
                None if (over := exceeded(charge, told_problems)) is None else bool(over),
            )
            for charge in found.charges
        ],
        time.found,
        shared,
    )


def _options(charge: QuotaExplanation, limit: Limit | None) -> tuple[str | None, str | None]:
    """Return the pacing and the scope of a limit, each None if quotas of this kind have no such option; both
    None if `limit` is None.
    """
    if limit is None:
        return None, None
    pacing = limit.pacing.value if charge.is_paced else None
    return pacing, limit.scope.value if charge.is_scoped else None


def _step(step: Step) -> StepJson:
    return StepJson(
        step.who,
        entity_json(step.entity) if step.entity is not None else None,
        number(step.value) if step.value is not None else None,
        None if step.entity is None else SHADOW if step.is_shadow else ENFORCED,
        step.verdict.value,
        step.reason,
    )
