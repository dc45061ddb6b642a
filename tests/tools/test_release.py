"""README in package indexes, and the check before a release."""

from __future__ import annotations

import re
import runpy
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

from tests.tools.compiled_only import ROOT
from tools.release import labels, mistakes

README: Final = (ROOT / "README.md").read_text("utf-8")
URL: Final = "https://example.org/o/weir"


def rendered(text: str, **project: Any) -> str:
    made: str = runpy.run_path(str(ROOT / "setup.py"))["readme"]({"version": "1.2.3", **project}, text)
    return made


def test_relative_links_and_images_lead_to_the_tag_in_the_repository() -> None:
    text = "![a chart](docs/a.svg) [page](docs/b.md#c) [other](https://kafka.apache.org) [here](#limits)"
    assert rendered(text, urls={"Repository": f"{URL}/"}) == (
        f"![a chart]({URL}/raw/v1.2.3/docs/a.svg) [page]({URL}/blob/v1.2.3/docs/b.md#c) "
        "[other](https://kafka.apache.org) [here](#limits)"
    )


def test_without_a_repository_the_readme_is_unchanged() -> None:
    assert rendered(README) == README


def test_no_link_of_the_readme_stays_relative_once_the_repository_is_set() -> None:
    made = rendered(README, urls={"Repository": URL})
    assert re.findall(r"\]\((?!https://|#)([^)]*)\)", made) == []
    paths = re.findall(rf"{re.escape(URL)}/(?:blob|raw)/v1\.2\.3/([^)#]+)", made)
    assert len(paths) > 20
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "deploy").mkdir()
    files = {
        "pyproject.toml": f'[project]\nversion = "1.2.3"\n[project.urls]\nRepository = "{URL}"\n',
        "CHANGELOG.md": "# Changelog\n\n## 1.2.3 (2026-12-01)\n",
        "deploy/Dockerfile": 'LABEL org.opencontainers.image.version="1.2.3"\n',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_a_checkout_with_all_that_a_release_needs_has_no_mistakes(checkout: Path) -> None:
    assert list(mistakes(checkout)) == []
    revision, source = labels(checkout)
    assert re.fullmatch(r"--label=org\.opencontainers\.image\.revision=[0-9a-f]{40}", revision)
    assert source == f"--label=org.opencontainers.image.source={URL}"


@pytest.mark.parametrize(
    ("file", "text", "mistake"),
    [
        ("pyproject.toml", '[project]\nversion = "1.2.3"\n', "has no Repository"),
        ("CHANGELOG.md", "# Changelog\n\n## Unreleased\n", "no section `## 1.2.3"),
        (
            "deploy/Dockerfile",
            'LABEL org.opencontainers.image.version="1.2.2"\n',
            "label version is not 1.2.3",
        ),
    ],
)
def test_the_check_names_a_file_that_is_not_ready(checkout: Path, file: str, text: str, mistake: str) -> None:
    (checkout / file).write_text(text)
    found = list(mistakes(checkout))
    assert any(mistake in line for line in found), found
    assert "git: changes that are not committed" in found


def test_the_check_names_a_tag_that_exists(checkout: Path) -> None:
    subprocess.run(["git", "tag", "v1.2.3"], cwd=checkout, check=True)
    assert list(mistakes(checkout)) == ["git: the tag v1.2.3 exists; set a newer version in pyproject.toml"]
