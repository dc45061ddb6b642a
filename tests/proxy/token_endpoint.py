"""A token endpoint of OAuth 2.0 (RFC 6749) that tests script."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer

import msgspec

from tests.kfake.cluster import HOST


@dataclass
class TokenEndpoint:
    answers: list[tuple[int, object]]
    """Status and JSON of each answer; the last one is repeated."""
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Header Authorization and body of each request."""
    url: str = ""


@contextmanager
def token_endpoint(*answers: tuple[int, object]) -> Iterator[TokenEndpoint]:
    endpoint = TokenEndpoint(list(answers))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            endpoint.asked.append((self.headers["Authorization"], body))
            status, answer = endpoint.answers[min(len(endpoint.asked), len(endpoint.answers)) - 1]
            self.send_response(status)
            if status == 302:
                self.send_header("Location", f"{endpoint.url}/elsewhere")
            self.end_headers()
            self.wfile.write(msgspec.json.encode(answer))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
            pass

    server = HTTPServer((HOST, 0), Handler)
    endpoint.url = f"http://{HOST}:{server.server_port}/token"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
