"""Render the report through its template. The page loads nothing and runs only its own script: its
Content-Security-Policy says so.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from weir.pipeline.report import expected, view
from weir.pipeline.report.actions import actions
from weir.pipeline.report.model import Findings
from weir.pipeline.report.names import SHORT, label, named
from weir.pipeline.report.plot import area, thin
from weir.pipeline.report.units import OF_QUOTA, number, plural, share, text
from weir.quotas.table.quota_kind import BYTE_RATES

_HERE: Final = Path(__file__).parent


def render(found: Findings, *, made: datetime, version: str) -> str:
    """Return the page as HTML, which shows the time `made` and Weir's `version`."""
    style, script = ((_HERE / name).read_text("utf-8") for name in ("page.css", "page.js"))
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (area, label, named, number, plural, share, text, thin)
    environment.filters |= {function.__name__: function for function in filters}
    return environment.get_template("page.html.j2").render(
        found=found,
        view=view,
        expected=expected,
        noun="client" if found.wanted.level == "user-client-id" else found.wanted.level,
        actions=actions(found),
        missing=view.missing(found),
        made=f"{made.astimezone(UTC):%Y-%m-%d %H:%M}",
        version=version,
        units=OF_QUOTA,
        byte_rates=[key.value for key in BYTE_RATES],
        short=SHORT,
        style=Markup(style),  # noqa: S704  # a file of this package
        script=Markup(script),  # noqa: S704  # likewise
        policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; base-uri 'none'; "
        "form-action 'none'",
    )


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
