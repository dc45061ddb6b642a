"""Choose the actions that the report proposes: about brokers, and from the recommendation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, NamedTuple

from markupsafe import Markup

from weir.pipeline.recommend.flags import HELD_BACK
from weir.pipeline.report.model import Findings, Proposal, Use
from weir.pipeline.report.names import SHORT, ReportEntity, label, visible
from weir.pipeline.report.units import OF_QUOTA, number, text

ACTIONS: Final = 10
FULL: Final = 0.8
"""Share of its capacity above which a broker needs an action."""
UNEVEN: Final = 2.0
"""Ratio of the bytes at the busiest broker to the mean of a client's brokers, above which the client needs an
action.
"""
_SAME_KIND: Final = 4
"""Number of actions of one kind before actions of other kinds come first."""


class Action(NamedTuple):
    """One line of the list of actions."""

    verb: str
    """The kind of the action, such as `Raise`."""
    text: Markup
    why: str
    weight: float
    """Importance within the kind."""


def actions(found: Findings) -> list[Action]:
    """Return at most `ACTIONS` actions: full brokers first, then clients that were held back, higher limits,
    first limits, lower limits, and uneven use of brokers.
    """
    about_use = (_full(found, found.use), _uneven(found.use)) if found.use else ()
    every = sorted(chain(*about_use, _changes(found.proposals)), key=lambda action: -action.weight)
    kinds = [
        [action for action in every if action.verb == verb]
        for verb in ("Relieve", "Try", "Raise", "Limit", "Lower", "Spread")
    ]
    parts = slice(_SAME_KIND), slice(_SAME_KIND, None)
    return [action for part in parts for each in kinds for action in each[part]][:ACTIONS]


def _full(found: Findings, use: Use) -> Iterator[Action]:
    for broker in use.brokers:
        for quota, capacity in found.wanted.capacity.items():
            load, unit = use.highest(broker, quota), OF_QUOTA[quota]
            if load > FULL * capacity:
                share = number(round(100 * load / capacity))
                about = Markup("broker {}: {} % of its capacity").format(broker, share)
                of = f"{text(load, unit)} of {text(capacity, unit)}"
                yield Action(
                    "Relieve", about, f"{quota}: {of} in the highest {use.columns.word}", load / capacity
                )


def _uneven(use: Use) -> Iterator[Action]:
    all_bytes = sum(use.bytes_)
    for client in use.clients:
        excess = client.total / max(client.brokers, 1) * (client.skew - 1)
        if client.skew >= UNEVEN and excess > all_bytes / 100:
            why = (
                f"broker {client.busiest_broker} carries {number(client.skew)} times the mean of its "
                f"{client.brokers} brokers: {text(excess, 'B')} more"
            )
            yield Action("Spread", label(client.entity, SHORT), why, excess)


def _changes(proposals: Sequence[Proposal]) -> Iterator[Action]:
    """Yield an action for each entity and kind of change; the largest users of a quota weigh most."""
    largest: dict[str, float] = {}
    kinds: dict[tuple[str, ReportEntity], list[Proposal]] = {}
    for each in proposals:
        largest[each.quota] = max(largest.get(each.quota, 0.0), each.used or 0.0)
        if each.changes:
            kinds.setdefault((_verb(each), each.entity), []).append(each)
    for (verb, entity), changes in kinds.items():
        about = Markup("{}: {}").format(label(entity, SHORT), ", ".join(map(_change, changes)))
        if verb == "Try":
            about += Markup(", in shadow mode or in steps")
        why = dict.fromkeys(part for each in changes for part in (*each.flags, each.reason) if part)
        weights = (each.used / largest[each.quota] for each in changes if each.used)
        yield Action(verb, about, visible("; ".join(why)), max(weights, default=0.0))


def _verb(proposal: Proposal) -> str:
    if proposal.current is None:
        return "Limit"
    if (proposal.proposed or 0) < proposal.current:
        return "Lower"
    return "Try" if HELD_BACK in proposal.flags else "Raise"


def _change(proposal: Proposal) -> str:
    limits = [limit for limit in (proposal.current, proposal.proposed) if limit is not None]
    return f"{proposal.quota} {' → '.join(text(limit, OF_QUOTA[proposal.quota]) for limit in limits)}"
