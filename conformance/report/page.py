"""The HTML page of a report: its content, and its rendering with Jinja2 (the extra `conformance`).

All text is escaped. The page needs no network, and its Content-Security-Policy permits none: only the style
and the script beside this module run, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from weir.conformance.report.matrix import Matrix, Tone

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE_MAX: Final = 1_000_000
"""Maximum size (bytes) of a page."""
CARDS_MAX: Final = 400
"""Maximum number of cards of a page."""
_ORIGINS_MAX: Final = 4
_HERE: Final = Path(__file__).parent


class ToolMissingError(Exception):
    """Raised if Jinja2 is missing."""


class Panel(msgspec.Struct, frozen=True):
    """One of the main verdicts at the top of the page. A click shows its cards only."""

    name: str
    verdict: str
    """"2 errors, 1 warning"."""
    tone: Tone
    id: str
    """Word that its cards have in `Card.cells`."""
    where: str = ""
    """APIs and versions of its cards, the first few."""


class Card(msgspec.Struct, frozen=True):
    """Equal findings, or cases that failed equally. Parts that do not apply are empty."""

    tone: Tone
    label: str
    """Severity, or outcome."""
    title: str
    """The sentence that says which peer does what."""
    where: str
    """API."""
    versions: str
    """"v3-v9"."""
    count: int
    """Number of findings, or of cases."""
    counted: str
    """The number with its noun."""
    cells: list[str]
    """Cells of the matrix, and panels, that the card belongs to (`Cell.id`, `Panel.id`)."""
    sender: str = ""
    path: str = ""
    expected: str = ""
    found: str = ""
    context: tuple[str, str, str] = ("", "", "")
    """Hex before the wrong byte, the byte, hex behind it."""
    place: str = ""
    rule: str = ""
    explanation: str = ""
    reference: str = ""
    known: bool = False
    """True if the baseline has it, or if it was expected."""
    repeats: list[str] = []
    """Commands that repeat it."""
    more: str = ""
    """Remark on what the card leaves out."""


class PassedCases(msgspec.Struct, frozen=True):
    """Cases of one cell that passed, with the same outcome."""

    outcome: str
    names: str


class CellCases(msgspec.Struct, frozen=True):
    """The cases of one cell of the matrix."""

    id: str
    title: str
    """"Metadata v9"."""
    count: str
    tone: Tone
    passed: list[PassedCases]
    failed: list[str]


class Page(msgspec.Struct, frozen=True):
    """The content of a page."""

    kind: str
    """Command: "weir verify"."""
    title: str
    subject: str
    """Names of the captures, or the target."""
    verdict: str
    tone: Tone
    panels: list[Panel]
    facts: list[tuple[str, str]]
    """Name and value of what was checked."""
    matrix: Matrix
    legend: list[tuple[Tone, str]]
    cards_title: str
    cards: list[Card]
    cases: list[CellCases] = []
    notes: list[str] = []
    empty: str = ""
    """Text in place of cards."""


def check_tool() -> None:
    """Raise ToolMissingError if Jinja2 is missing. Call this before work that takes long."""
    try:
        import jinja2  # noqa: F401  # only whether it is there
    except ImportError:
        raise ToolMissingError('an HTML page needs Jinja2: pip install "kafka-weir[conformance]"') from None


def render(page: Page) -> bytes:
    """Return a page of at most PAGE_MAX bytes: it has fewer cards and cases, and says so, if all of them do
    not fit. Raises ToolMissingError.
    """
    cards, cases = min(len(page.cards), CARDS_MAX), len(page.cases)
    while len(html := _render(page, cards, cases)) > PAGE_MAX and cards + cases:
        cards, cases = cards * 2 // 3, cases * 2 // 3
    return html


def _render(page: Page, cards: int, cases: int) -> bytes:
    return render_template(
        "page.html.j2",
        page=page,
        cards=page.cards[:cards],
        cards_left=len(page.cards) - cards,
        cases=page.cases[:cases],
        cases_left=len(page.cases) - cases,
    )


def render_template(name: str, **content: object) -> bytes:
    """Return an HTML page of a template beside this module. Raises ToolMissingError."""
    check_tool()
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # optional

    style, script = ((_HERE / name).read_text("utf-8") for name in ("page.css", "page.js"))
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template, policy = environment.get_template(name), _policy(style, script)
    page = template.render(style=_own(style), script=_own(script), policy=policy, **content)
    return page.encode("utf-8", "backslashreplace")


def _own(source: str) -> Any:
    """Return our own style or script as text that is not escaped."""
    from markupsafe import Markup  # comes with Jinja2

    return Markup(source)  # noqa: S704  # a file of this package


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; "
        "form-action 'none'"
    )


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def by_weight(cards: Iterable[Card]) -> list[Card]:
    """Return the cards: new ones first, then by tone, then the most frequent first."""
    return sorted(cards, key=lambda card: (card.known, list(Tone).index(card.tone), -card.count))


def origins(cards: Iterable[Card], id_: str) -> str:
    """Return where a panel's cards are: "Produce v3-v9, Fetch v4, …"."""
    found = dict.fromkeys(
        f"{card.where} {card.versions}" for card in cards if id_ in card.cells and card.where
    )
    names = list(found)[:_ORIGINS_MAX]
    return ", ".join(names + (["…"] if len(found) > len(names) else []))


def worst(tones: Iterable[Tone]) -> Tone:
    """Return the gravest tone; OK without tones."""
    return min(tones, key=list(Tone).index, default=Tone.OK)
