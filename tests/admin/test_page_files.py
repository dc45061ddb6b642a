"""The files of the page: their headers, their entity tags, and access to them."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.admin.fake_api import FakeApi, served
from weir.proxy.admin.access import OPEN
from weir.proxy.admin.page.routes import CONTENTS, PATHS, POLICY


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with served(FakeApi()) as url:
        yield urlsplit(url).netloc


def asked(host: str, path: str, **headers: str) -> tuple[int, bytes, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection(host, timeout=20)
    try:
        connection.request(
            "GET", path, headers={name.replace("_", "-"): its for name, its in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def test_each_file_of_the_page_is_served_with_its_type_policy_and_tag(host: str) -> None:
    types = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "/": "text/html"}
    for path, content in CONTENTS.items():
        status, body, headers = asked(host, path)
        assert (status, body) == (200, content)
        assert headers.get_content_type() == types[path.rpartition(".")[2]], path
        assert headers["content-security-policy"] == POLICY
        assert headers["cache-control"] == "no-cache"
        assert headers["x-content-type-options"] == "nosniff"
        assert re.fullmatch('"[0-9a-f]{32}"', headers["etag"])


def test_the_policy_permits_no_inline_script_no_other_host_and_no_html_from_text() -> None:
    policy = dict(part.split(" ", 1) for part in POLICY.split("; "))
    sources = [value for name, value in policy.items() if name.endswith("-src")]
    assert policy["default-src"] == "'none'"
    assert set(sources) == {"'self'", "'none'"}
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["trusted-types"] == "'none'"


def test_the_page_names_only_files_that_are_served_and_has_no_inline_script_or_style() -> None:
    page = CONTENTS["/"].decode()
    named = set(re.findall(r'(?:src|href)="([^"]*)"', page))
    for path, content in CONTENTS.items():
        if path.endswith(".js"):
            named |= {f"page/{name}" for name in re.findall(r'from "\./([^"]*)"', content.decode())}
            assert "innerHTML" not in content.decode()
            assert "http:" not in content.decode().replace("http://www.w3.org/2000/svg", "")
    assert {f"/{name}" for name in named} == PATHS - {"/"}, "links are relative to the base path"
    assert not re.search(r"<style|style=|\son\w+=|<script(?! type=\"module\" src=)", page)


def test_browsers_open_the_page_without_a_token() -> None:
    assert PATHS <= OPEN
    assert not any(path.startswith("/api") for path in OPEN)


def test_no_file_beside_those_of_the_page_is_served(host: str) -> None:
    for path in (
        "/page/",
        "/page/index.html",
        "/page/routes.py",
        "/page/../routes.py",
        "/page/%2e%2e/routes.py",
    ):
        assert asked(host, path)[0] == 404, path
