"""Choose the actions that the report proposes: about brokers, and from the recommendation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from markupsafe import Markup

from weir.pipeline.recommend.flags import HELD_BACK
from weir.pipeline.report.model import QUANTITIES, Findings, Proposal, Use
from weir.pipeline.report.names import SHORT, Entity, label, visible
from weir.pipeline.report.units import BYTES, number

ACTIONS: Final = 10
FULL: Final = 0.8
"""Share of its capacity above which a broker needs an action."""
UNEVEN: Final = 2.0
"""Ratio of the bytes at the busiest broker to the mean of a client's brokers, above which the client needs an
action.
"""
_SAME_KIND: Final = 4
"""Number of actions of one kind before actions of other kinds come first."""


@dataclass(frozen=True, slots=True)
class Action:
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
    kinds: dict[str, list[Action]] = {
        verb: [] for verb in ("Relieve", "Try", "Raise", "Limit", "Lower", "Spread")
    }
    about_use = (_full(found, found.use), _uneven(found.use)) if found.use else ()
    for action in chain(*about_use, _changes(found.proposals)):
        kinds[action.verb].append(action)
    for each in kinds.values():
        each.sort(key=lambda action: -action.weight)
    first = [action for each in kinds.values() for action in each[:_SAME_KIND]]
    more = [action for each in kinds.values() for action in each[_SAME_KIND:]]
    return (first + more)[:ACTIONS]


def _full(found: Findings, use: Use) -> Iterator[Action]:
    for broker in use.brokers:
        for quota, capacity in found.capacity.items():
            load = max(broker.loads.get(quota, ()), default=0.0)
            if load > FULL * capacity:
                text = Markup("broker {}: {} % of its capacity").format(
                    broker.broker, number(round(100 * load / capacity))
                )
                of = f"{QUANTITIES[quota].text(load)} of {QUANTITIES[quota].text(capacity)}"
                why = f"{quota}: {of} in the highest {use.columns.word}"
                yield Action("Relieve", text, why, load / capacity)


def _uneven(use: Use) -> Iterator[Action]:
    all_bytes = sum(use.bytes_)
    for client in use.clients:
        excess = client.total / max(client.brokers, 1) * (client.skew - 1)
        if client.skew >= UNEVEN and excess > all_bytes / 100:
            why = (
                f"broker {client.busiest_broker} carries {number(client.skew)} times the mean of its "
                f"{client.brokers} brokers: {BYTES.text(excess)} more"
            )
            yield Action("Spread", label(client.entity).page(SHORT), why, excess)


def _changes(proposals: Sequence[Proposal]) -> Iterator[Action]:
    """Yield an action for each entity and kind of change; the largest users of a quota weigh most."""
    largest: dict[str, float] = {}
    kinds: dict[tuple[str, Entity], list[Proposal]] = {}
    for each in proposals:
        largest[each.quota] = max(largest.get(each.quota, 0.0), each.used or 0.0)
        if each.changes:
            kinds.setdefault((_verb(each), each.entity), []).append(each)
    for (verb, entity), changes in kinds.items():
        text = Markup("{}: {}").format(label(entity).page(SHORT), ", ".join(map(_change, changes)))
        if verb == "Try":
            text += Markup(", in shadow mode or in steps")
        why = dict.fromkeys(part for each in changes for part in (*each.flags, each.reason) if part)
        weights = (each.used / largest[each.quota] for each in changes if each.used)
        yield Action(verb, text, visible("; ".join(why)), max(weights, default=0.0))


def _verb(proposal: Proposal) -> str:
    if proposal.current is None:
        return "Limit"
    if (proposal.proposed or 0) < proposal.current:
        return "Lower"
    return "Try" if HELD_BACK in proposal.flags else "Raise"


def _change(proposal: Proposal) -> str:
    texts = map(QUANTITIES[proposal.quota].text, (proposal.current, proposal.proposed))
    return f"{proposal.quota} {' → '.join(text for text in texts if text != '-')}"
