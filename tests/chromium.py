"""Open a page in Chromium, without a window, for tests of pages."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tools.pictures.browser import CHROMIUM, HEADLESS

NEEDS_CHROMIUM: Final = pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium in the PATH")


def opened(file: Path, fragment: str = "", *options: str) -> tuple[str, str]:
    """Return the document of the page `file` after its scripts ran, and the browser's log."""
    assert CHROMIUM is not None
    command = [CHROMIUM, *HEADLESS, "--enable-logging=stderr"]
    command += [f"--user-data-dir={file.parent / 'profile'}", *options, "--dump-dom"]
    command.append(f"{file.as_uri()}{fragment}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, done.stderr


def probed(page: str, probe: str, folder: Path, fragment: str = "", *options: str) -> str:
    """Return the result (a string) of the JavaScript expression `probe` in a copy of the page without
    Content-Security-Policy.
    """
    script = (
        '<p id="probed"></p><script>addEventListener("load", () => setTimeout(() => {'
        f'document.getElementById("probed").textContent = String({probe});'
        "}, 0));</script></body>"
    )
    html = re.sub(r"<meta http-equiv=[^>]*>", "", page).replace("</body>", script)
    file = folder / "probed.html"
    file.write_text(html, "utf-8")
    (found,) = re.findall(r'<p id="probed">(.*?)</p>', opened(file, fragment, *options)[0])
    return str(found)
