"""Drive Chromium by the DevTools protocol: open a page, press keys, read what is shown, take pictures."""

from __future__ import annotations

import base64
import json
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Request, TextMessage

from tools.pictures import PictureError

CHROMIUM: Final = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None
)
"""Path of Chromium; None without one in the PATH."""
HEADLESS: Final = ("--headless", "--no-sandbox", "--disable-gpu")
"""Options of Chromium without a window."""
TIMEOUT_S: Final = 60.0
"""Maximum time (s) to wait for Chromium, on however busy a machine."""


class Link:
    """A WebSocket to Chromium."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), TIMEOUT_S)
        self._connection = WSConnection(ConnectionType.CLIENT)
        self._messages: list[str] = []
        self._text = ""
        self._accepted = False
        self._send(Request(host=parts.netloc, target=parts.path))
        while not self._accepted:
            self._receive()

    def send(self, message: dict[str, Any]) -> None:
        self._send(TextMessage(data=json.dumps(message)))

    def message(self) -> dict[str, Any]:
        """Return the next message. Raises TimeoutError, ConnectionError."""
        while not self._messages:
            self._receive()
        message: dict[str, Any] = json.loads(self._messages.pop(0))
        return message

    def close(self) -> None:
        self._socket.close()

    def _send(self, event: Any) -> None:
        self._socket.sendall(self._connection.send(event))

    def _receive(self) -> None:
        data = self._socket.recv(1 << 20)
        if not data:
            raise ConnectionError("Chromium has closed the connection")
        self._connection.receive_data(data)
        for event in self._connection.events():
            if isinstance(event, TextMessage):
                self._text += event.data
                if event.message_finished:
                    self._messages.append(self._text)
                    self._text = ""
            elif isinstance(event, CloseConnection):
                raise ConnectionError("Chromium has closed the WebSocket")
            self._accepted = self._accepted or isinstance(event, AcceptConnection)


@dataclass
class Browser:
    """One tab."""

    link: Link
    said: list[str] = field(default_factory=list)
    """Messages of the console, errors of scripts, and refusals by the policy."""
    requested: list[str] = field(default_factory=list)
    """URLs of all requests."""
    _ids: int = 0

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol, and return its result."""
        self._ids += 1
        self.link.send({"id": self._ids, "method": method, "params": params})
        while True:
            message = self.link.message()
            if message.get("id") == self._ids:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.consoleAPICalled":
                self.said.append(str([each.get("value") for each in params["args"]]))
            case "Runtime.exceptionThrown":
                self.said.append(json.dumps(params["exceptionDetails"]))
            case "Log.entryAdded":
                self.said.append(params["entry"]["text"])
            case "Network.requestWillBeSent":
                self.requested.append(params["request"]["url"])

    def open(
        self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False, scale: float = 1
    ) -> None:
        """Open a page in a window of this size (CSS pixels)."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.leave()
        self.resize(width, height, scale)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Page.navigate", url=url)

    def leave(self) -> None:
        """Leave the page, and forget its requests and messages."""
        self.call("Page.navigate", url="about:blank")
        self.said.clear()
        self.requested.clear()

    def resize(self, width: int, height: int, scale: float = 1) -> None:
        """Give the window this size (CSS pixels); phones are narrower than 500."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 500,
        )

    def read(self, expression: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str, wanted: Callable[[Any], bool] = bool) -> Any:
        """Wait until the value of a JavaScript expression is as wanted, and return it. An element counts as
        true, and an error as false.
        """
        end = time.monotonic() + TIMEOUT_S
        safe = (
            f"(() => {{ try {{ const it = {expression}; return it instanceof Node ? true : it; }}"
            " catch { return null; } })()"
        )
        while not wanted(found := self.read(safe)):
            assert time.monotonic() < end, f"{expression} is {found!r}; said: {self.said}"
            time.sleep(0.03)
        return found

    def text(self, selector: str) -> str:
        """Return the text of an element, as shown."""
        return str(self.read(f"document.querySelector({json.dumps(selector)}).innerText"))

    def click(self, selector: str) -> None:
        self.read(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, key: str) -> None:
        """Press a key, such as `j` or `Enter`."""
        codes = {"Enter": 13, "Escape": 27}
        text = {"Enter": "\r", "Escape": ""}.get(key, key)
        common = {"key": key, "windowsVirtualKeyCode": codes.get(key, ord(key[0].upper()))}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def type(self, text: str) -> None:
        """Type a text into the focused field."""
        self.call("Input.insertText", text=text)

    def picture(self, file: Path, *, quality: int = 80) -> Path:
        """Write a picture of the window to a file, WebP if its name ends so, else PNG; return its path."""
        webp = {"format": "webp", "quality": quality}
        options: dict[str, Any] = webp if file.suffix == ".webp" else {"format": "png"}
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **options)["data"]))
        return file


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start Chromium without a window, with its profile in `folder`; yield a tab. End it at the end. Raises
    PictureError without Chromium.
    """
    if CHROMIUM is None:
        raise PictureError("pictures of pages need a Chromium in the PATH")
    command = [CHROMIUM, *HEADLESS, "--remote-debugging-port=0"]
    command += [f"--user-data-dir={folder / 'profile'}", "--disable-background-networking", "--no-first-run"]
    command += ["--disable-component-update", "--hide-scrollbars", "about:blank"]
    log = folder / "chromium.log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file)  # noqa: S603  # our own command
    try:
        address = _address(log, process)
        with urllib.request.urlopen(f"http://{address}/json/list", timeout=TIMEOUT_S) as answer:
            tabs = json.load(answer)
        link = Link(next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page"))
        try:
            yield Browser(link)
        finally:
            link.close()
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Return HOST:PORT of Chromium's protocol, as soon as its log tells."""
    end = time.monotonic() + TIMEOUT_S
    while True:
        found = re.search(r"DevTools listening on ws://([^/]+)/", log.read_text("utf-8", "replace"))
        if found:
            return found[1]
        assert process.poll() is None, log.read_text("utf-8", "replace")
        assert time.monotonic() < end, "Chromium does not start"
        time.sleep(0.05)
