"""Pictures of docs/tour.md: the admin endpoint's page while a quota is changed there, and `weir top`."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Final

from tools.pictures import terminal
from tools.pictures.browser import Browser, browser
from tools.pictures.scene import Scene, scene

SCALE: Final = 1.5
SECONDS: Final = 180.0
"""Time (s) for which the charts fill."""
WINDOWS: Final[dict[str, dict[str, int | bool]]] = {
    "page.webp": {"width": 1280, "height": 900},
    "page-dark.webp": {"width": 1280, "height": 900, "dark": True},
    "page-phone.webp": {"width": 390, "height": 844},
}
"""Size (CSS pixels) and colour scheme of a window, by the name of its picture."""
WAITING: Final = (
    "document.querySelector('#total-throttled_entities.bad') && document.querySelector('#list td')"
)
"""True while the page shows a client that waits at this moment."""
SHOWN: Final = "document.querySelectorAll('#throttled li').length && document.querySelector('#list tbody tr')"
CHANGED: Final = "clicks"
NEW_LIMIT: Final = "300 KB"
"""Limit of `CHANGED` that the tour previews and applies; the client uses twice as much."""

AFTER_S: Final = 20.0
"""Time (s) from the first sight of the changed quota's effect to the last picture."""


def draw(folder: Path) -> None:
    """Run the scene, print the rates of its clients, and write the pictures. Raises PictureError without
    Chromium, and what `scene` raises.
    """
    with tempfile.TemporaryDirectory(prefix="weir-page-") as root, scene(Path(root)) as its:
        print(f"{its.url} is open for {SECONDS:g} s and longer", flush=True)
        for span in its.measure(SECONDS):
            print(span, flush=True)
        (folder / "top.svg").write_text(terminal.draw(its.address), "utf-8")
        with browser(Path(root)) as tab:
            _overview(tab, its, folder)
            _preview(tab, its, folder)
            print(f"a change was shown after {_apply(tab, its, folder):.1f} s", flush=True)


def _overview(tab: Browser, its: Scene, folder: Path) -> None:
    """Write the pictures of the page as it opens, and of the details of the first throttled entity."""
    for name, window in WINDOWS.items():
        tab.open(its.url, **window, scale=SCALE)  # type: ignore[arg-type]  # sizes are integers
        tab.until(WAITING)
        tab.picture(folder / name)
    _desktop(tab, its)
    tab.click("#throttled button")
    tab.until("document.querySelector('#detail').open")
    tab.picture(folder / "page-detail.webp")


def _preview(tab: Browser, its: Scene, folder: Path) -> None:
    """Preview a lower limit of `CHANGED` in the form, and write its picture."""
    _desktop(tab, its)
    rows = "[...document.querySelectorAll('#list button')]"
    row = f"{rows}.find((each) => each.innerText.includes('{CHANGED}'))"
    tab.until(row)
    tab.read(f"{row}.click()")
    tab.until("document.querySelector('#detail').open")
    tab.click("#detail-actions button:last-child")
    tab.until("document.querySelector('#quota-value').value")
    tab.read("document.querySelector('#quota-value').select()")
    tab.type(NEW_LIMIT)
    tab.press("Enter")
    tab.until("document.querySelector('#previewed li')")
    tab.until("document.querySelector('#list tbody tr')")
    tab.resize(1280, 720, SCALE)
    _show_form(tab)
    tab.picture(folder / "page-preview.webp")


def _apply(tab: Browser, its: Scene, folder: Path) -> float:
    """Apply the previewed change with the token. Write the picture of the page `AFTER_S` later. Return the
    time (s) from the change until the page showed `CHANGED` as throttled.
    """
    tab.click("#apply")
    tab.until("document.querySelector('#token-dialog').open")
    tab.read("document.querySelector('#token').focus()")
    tab.type(its.token)
    tab.press("Enter")
    tab.until("document.querySelector('#change-said').textContent === 'Applied.'")
    began_s = time.monotonic()
    wanted = json.dumps(f"client-id={CHANGED}")
    tab.until(f"document.querySelector('#throttled').textContent.includes({wanted})")
    took_s = time.monotonic() - began_s
    time.sleep(AFTER_S)
    tab.resize(1280, 900, SCALE)
    tab.read("window.scrollTo(0, 0)")
    tab.picture(folder / "page-applied.webp")
    return took_s


def _desktop(tab: Browser, its: Scene) -> None:
    tab.open(its.url, width=1280, height=900, scale=SCALE)
    tab.until(SHOWN)


def _show_form(tab: Browser) -> None:
    """Scroll to the lists, below the header, which keeps its place."""
    tab.read("window.scrollBy(0, document.querySelector('#tabs').getBoundingClientRect().top - 70)")
