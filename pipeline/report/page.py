"""Render the report through its template. The page loads nothing and runs only its own script: its
Content-Security-Policy says so.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from weir.pipeline.report.model import QUANTITIES, Bounds
from weir.pipeline.report.names import named
from weir.pipeline.report.summary import when
from weir.pipeline.report.units import BYTES, COUNT, SECONDS, number, plural, share

if TYPE_CHECKING:
    from weir.pipeline.report.view import View

_HERE: Final = Path(__file__).parent


def render(view: View) -> str:
    """Return the page as HTML."""
    style, script = ((_HERE / name).read_text("utf-8") for name in ("page.css", "page.js"))
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": BYTES.text,
        "count": COUNT.text,
        "named": lambda text: named(text).page(),
        "number": number,
        "plural": plural,
        "rate": lambda value, quota: QUANTITIES[quota].text(value),
        "seconds": SECONDS.text,
        "share": share,
        "when": when,
        "within": _within,
    }
    policy = (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; "
        "form-action 'none'"
    )
    own = {"style": Markup(style), "script": Markup(script)}  # noqa: S704  # files of this package
    return environment.get_template("page.html.j2").render(view=view, policy=policy, **own)


def _within(seconds: Bounds) -> str:
    """Return a time (s) that is known within bounds as text."""
    lower = SECONDS.text(seconds.lower)
    if seconds.upper is None:
        return f"at least {lower}" if seconds.lower else "unknown"
    return lower if seconds.upper == seconds.lower else f"{lower} to {SECONDS.text(seconds.upper)}"


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
