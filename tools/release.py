"""Look for mistakes of a release that a program can find, and print the labels of its image.

python -m tools.release check
python -m tools.release labels
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

ROOT: Final = Path(__file__).parents[1]


def project(root: Path = ROOT) -> dict[str, Any]:
    """Return the table `project` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    return found


def mistakes(root: Path = ROOT) -> Iterator[str]:
    """Yield a line for each reason not to release the checkout at `root`."""
    table = project(root)
    version = table["version"]
    if not table.get("urls", {}).get("Repository"):
        yield "pyproject.toml: [project.urls] has no Repository: links of the README would break on PyPI"
    if not re.search(rf"^## {re.escape(version)} ", (root / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE):
        yield f"CHANGELOG.md: no section `## {version} (DATE)`"
    if f'image.version="{version}"' not in (root / "deploy/Dockerfile").read_text("utf-8"):
        yield f"deploy/Dockerfile: the label version is not {version}"
    if _git(root, "status", "--porcelain", "--untracked-files=no"):
        yield "git: changes that are not committed"
    if _git(root, "tag", "--list", f"v{version}"):
        yield f"git: the tag v{version} exists; set a newer version in pyproject.toml"


def labels(root: Path = ROOT) -> list[str]:
    """Return the options of `docker build` for the image's labels that only a checkout knows."""
    values = {"revision": _git(root, "rev-parse", "HEAD")}
    if source := project(root).get("urls", {}).get("Repository"):
        values["source"] = source
    return [f"--label=org.opencontainers.image.{name}={value}" for name, value in values.items()]


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)  # noqa: S603, S607
    return done.stdout.strip()


@click.group(help=__doc__)
def main() -> None:
    pass


@main.command("check")
def check_command() -> None:
    """Print what is missing for a release; exit with 1 if anything is."""
    found = list(mistakes())
    for line in found:
        click.echo(line)
    click.echo(f"{project()['version']}: {len(found)} mistakes", err=True)
    sys.exit(bool(found))


@main.command("labels")
def labels_command() -> None:
    """Print options of `docker build`, which `make image` passes on."""
    click.echo(" ".join(labels()))


if __name__ == "__main__":
    main()
