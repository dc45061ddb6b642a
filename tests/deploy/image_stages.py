"""Replay deploy/Dockerfile in a folder, without a container engine: its commands run on this system, with a
copy of a Python of this system in place of the base image.

Paths of the image are paths below the folder. This shows that the commands fit the files they get, and the
result fits its variables; it shows nothing about the base image, and `apt-get` does not run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tests.deploy.exposition import ROOT

DOCKERFILE: Final = ROOT / "deploy" / "Dockerfile"
PATHS: Final = re.compile(r"(?<![\w./-])/(?=(?:opt|etc|source)\b)")
"""The slash that begins a path of the image."""
NOT_COPIED: Final = ("test", "tests", "__pycache__", "idlelib", "turtledemo", "*.a")
"""Parts of a Python that the copy leaves out, to be small."""
USER: Final = 65532


class Instruction(NamedTuple):
    name: str
    text: str


def stages() -> list[list[Instruction]]:
    """Return the instructions of each stage, the first of which is FROM."""
    lines = [line for line in DOCKERFILE.read_text("utf-8").splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found: list[list[Instruction]] = []
    for line in filter(None, joined.splitlines()):
        name, _, text = line.partition(" ")
        if name == "FROM":
            found.append([])
        if found:
            found[-1].append(Instruction(name, text))
    return found


def python_minor() -> str:
    """Return the minor release of the image's Python, such as `3.13`."""
    (minor,) = re.findall(r"^ARG PYTHON=(\d+\.\d+)", DOCKERFILE.read_text("utf-8"), re.MULTILINE)
    return str(minor)


def base_python() -> Path | None:
    """Return the folder (`sys.base_prefix`) of a Python of the image's minor release, else of the Python
    that runs the tests; None if that is the system's own.
    """
    minor = python_minor()
    for command in (f"python{minor}", f"{_pyenv(minor)}/bin/python{minor}", sys.executable):
        prefix = _prefix(command)
        if prefix not in (None, Path("/usr")):  # whose folder has everything else, too
            return prefix
    return None


def _pyenv(minor: str) -> str:
    """Return the folder of pyenv's newest Python of a minor release; empty without one."""
    command = shutil.which("pyenv")
    if command is None:
        return ""
    return subprocess.run(
        [command, "prefix", minor], capture_output=True, text=True, check=False
    ).stdout.strip()


def _prefix(command: str) -> Path | None:
    try:
        asked = [command, "-c", "import sys; print(sys.base_prefix)"]
        return Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    except (OSError, subprocess.CalledProcessError):  # such as a shim of pyenv without that release
        return None


class Replay:
    def __init__(self, root: Path, base: Path) -> None:
        """Copy the Python in `base` to the folder."""
        self.root = root
        self.variables = {
            "PATH": f"{root}/usr/local/bin:{os.environ['PATH']}",
            "HOME": str(root),
            "LD_LIBRARY_PATH": f"{root}/usr/local/lib",  # of the copied Python, instead of the original's
        }
        """Environment of commands: the image's, and a minimum for this system."""
        ignored = shutil.ignore_patterns(*NOT_COPIED)
        shutil.copytree(base, root / "usr/local", symlinks=True, ignore=ignored)
        python = root / "usr/local/bin/python"
        if not python.exists():
            python.symlink_to("python3")

    def build(self, context: Path, instructions: list[Instruction]) -> None:
        """Follow the instructions of a stage that makes a copy of `context`, a folder with its files."""
        folder = self.root
        for name, text in instructions:
            if name in ("ENV", "ARG"):
                self.variables |= dict(word.split("=", 1) for word in shlex.split(text))
            elif name == "WORKDIR":
                folder = Path(self.placed(text))
                folder.mkdir(parents=True)
            elif name == "COPY":
                *sources, to = text.split()
                for source in sources:
                    _copy(context / source, folder / (source if to == "./" else to))
            elif name == "RUN" and not text.startswith("apt-get "):
                self.run("sh", "-c", self.placed(text), folder=folder)

    def placed(self, text: str) -> str:
        """Return a text in which paths of the image are paths below the folder."""
        return PATHS.sub(f"{self.root}/", text)

    def run(self, *command: str, folder: Path | None = None) -> str:
        """Run a command with the variables; return its output. Raises AssertionError."""
        pipe = subprocess.PIPE
        with subprocess.Popen(
            command,
            cwd=folder or self.root,
            env=self.variables,
            stdout=pipe,
            stderr=pipe,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                out, errors = process.communicate()
            finally:
                with suppress(ProcessLookupError):  # a compiler must not outlive a test without time
                    os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0, f"{command}: {out[-2000:]}{errors[-4000:]}"
        return out


def _copy(source: Path, to: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, to, symlinks=True)
    else:
        shutil.copy2(source, to)


def committed_context(to: Path, paths: set[str]) -> None:
    """Copy files of the checkout to a folder: what a build of a clean checkout gets."""
    for name in paths:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to / name, follow_symlinks=False)


def confined(root: Path) -> list[str] | None:
    """Return the beginning of a command that runs as the image's user, without privileges, with `root`
    mounted read-only; None if this system does not permit that.
    """
    mount = f"mount --bind {root} {root} && mount -o remount,ro,bind {root}"
    ids = ["--reuid", str(USER), "--regid", str(USER), "--clear-groups", "--no-new-privs"]
    dropped = shlex.join(["setpriv", *ids, "--inh-caps=-all", "--bounding-set=-all"])
    begin = ["unshare", "--mount", "sh", "-c", f'{mount} && cd {root} && exec {dropped} "$@"', "sh"]
    try:
        done = subprocess.run([*begin, "true"], capture_output=True, check=False)
    except OSError:
        return None
    return begin if done.returncode == 0 else None
