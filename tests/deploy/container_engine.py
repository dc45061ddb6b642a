"""An engine of containers for tests: a dockerd of its own, without registry, bridge and packet filter.

The base of the image comes from Debian's packages, because no registry is asked. So the base differs from the
one that deploy/Dockerfile names: its Python is Debian's, of the same minor release.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.deploy.exposition import ROOT

BASE: Final = "python:3.13-slim-bookworm"
"""Name of the imported base: that of deploy/Dockerfile."""
PACKAGES: Final = "ca-certificates,python3-dev,python3-venv,python-is-python3"
SUITE: Final = "trixie"
"""The release of Debian with Python 3.13."""
OWN_SETTINGS: Final = ("etc/ssl/certs/ca-certificates.crt", "etc/pip.conf", "etc/apt/apt.conf.d")
"""Files of this machine that its apt and pip may need to reach the package indexes."""
BASE_S, BUILD_S, STOP_S = 1800, 3600, 120


def hindrance() -> str | None:
    """Return the reason for which no image can be built here; None if one can."""
    missing = [name for name in ("dockerd", "docker", "debootstrap") if shutil.which(name) is None]
    if os.geteuid() or missing:
        return f"needs root, and Debian's docker.io and debootstrap ({', '.join(missing) or 'all there'})"
    return None


def archive(name: str, suite: str, packages: str) -> Path:
    """Return the archive `name`, made once: packages of a release of Debian, with this machine's settings of
    apt and pip.
    """
    made = ROOT / ".cache" / f"{name.replace(':', '-')}.tar"
    if made.exists():
        return made
    made.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="weir-base-") as folder:
        root, packed = Path(folder, "root"), Path(folder, "root.tar")
        # What it mounts is gone with its last process, also if it is killed.
        command = ["unshare", "--mount", "debootstrap", "--variant=minbase"]
        command += [f"--include={packages}", suite, str(root)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BASE_S, check=False)
        if done.returncode:
            raise NoEngineError(f"debootstrap has failed: {done.stdout[-500:]}")
        for file in OWN_SETTINGS:
            if (source := Path("/", file)).is_dir():
                shutil.copytree(source, root / file, dirs_exist_ok=True)
            elif source.exists():
                shutil.copy2(source, root / file)
        subprocess.run(["tar", "-C", root, "-cf", packed, "."], timeout=BASE_S, check=True)
        shutil.move(packed, made)
    return made


class NoEngineError(Exception):
    """This machine can run no engine, or has no packages for the base; the text says why."""


class Engine:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._host = f"unix://{folder}/docker.sock"

    def docker(self, *arguments: str, wait_s: float = STOP_S) -> str:
        """Run a command of docker, and return its output. Raises AssertionError if it fails."""
        done = self.tried(*arguments, wait_s=wait_s)
        assert done.returncode == 0, f"docker {arguments}: {done.stdout[-3000:]}"
        return done.stdout.strip()

    def tried(self, *arguments: str, wait_s: float = STOP_S) -> subprocess.CompletedProcess[str]:
        """Run a command of docker, which may fail; standard error is part of the output."""
        return subprocess.run(
            ["docker", "--host", self._host, *arguments],
            cwd=ROOT,
            env={**os.environ, "DOCKER_BUILDKIT": "0"},  # needs no plug-in
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=wait_s,
            check=False,
        )

    def build(self, tag: str, arguments: Mapping[str, str]) -> None:
        """Build deploy/Dockerfile with these build arguments."""
        given = [f"--build-arg={name}={value}" for name, value in arguments.items()]
        command = ("build", "--network=host", *given, "--file=deploy/Dockerfile", f"--tag={tag}", ".")
        self.docker(*command, wait_s=BUILD_S)

    def import_base(self, tag: str, suite: str = SUITE, packages: str = PACKAGES) -> None:
        """Make an image of Debian's packages. Raises NoEngineError."""
        self.docker("import", str(archive(tag, suite, packages)), tag, wait_s=BASE_S)

    def size(self, tag: str) -> int:
        """Return the size (bytes) of an image with its base."""
        return int(self.docker("image", "inspect", "--format={{.Size}}", tag))


@contextmanager
def running_engine() -> Iterator[Engine]:
    """An engine without images. At the end its containers, images and processes are gone. Raises
    NoEngineError.
    """
    folder = Path(tempfile.mkdtemp(prefix="weir-image-"))
    places = [f"--{name}={folder}/{name}" for name in ("data-root", "exec-root", "pidfile")]
    alone = ["--iptables=false", "--ip6tables=false", "--bridge=none"]
    with (folder / "log").open("wb") as log:
        command = ["nice", "dockerd", *alone, *places, f"--host=unix://{folder}/docker.sock"]
        daemon = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        engine = Engine(folder)
        while engine.tried("version").returncode:
            if daemon.poll() is not None:
                raise NoEngineError(f"dockerd has ended: {(folder / 'log').read_text('utf-8')[-500:]}")
        yield engine
        for container in engine.docker("ps", "--quiet").split():
            engine.docker("kill", container)
    finally:
        daemon.terminate()
        daemon.wait(STOP_S)
        for mounted in (folder / "exec-root/netns").glob("*"):  # dockerd leaves that of the host's network
            subprocess.run(["umount", mounted], check=True)
        shutil.rmtree(folder)
