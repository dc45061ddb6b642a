"""The files that deploy/Dockerfile copies."""

from __future__ import annotations

import re
import subprocess

from tests.deploy.exposition import ROOT

DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text("utf-8")


def copied() -> list[str]:
    build = DOCKERFILE.split("\nFROM ")[1]
    return [path for line in re.findall(r"^COPY (.*)$", build, re.MULTILINE) for path in line.split()[:-1]]


def committed(*paths: str) -> set[str]:
    """Return the files below these paths that git has; of a link, the link itself."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(listed.stdout.split("\0")) - {""}
