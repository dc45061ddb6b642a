"""Make a Debian package of a wheel: Weir and its libraries in /opt/weir, the command `weir`, a service, and a
configuration in /etc/weir.

python -m tools.debian build/wheels/kafka_weir-*.whl

The package has what `pip install` puts into a virtual environment, and takes Python from Debian, which
mends it. Three forms of the same compiled wheel were measured on 2026-11-29 on a busy machine. CPU of `weir
--version`, the second time; CPU of `weir run` until it listens; smallest of 12 figures of CPU per produce
request (us):

- this package: 0.14 s, 0.32 s, 33.1 (the wheel itself: 0.16 s, 0.33 s, 34.1);
- a folder by PyInstaller 6.22, 70 MB: 0.32 s, 0.49 s, 39.4. It needs no Python, but `weir run` starts
  processes with `sys.executable -m`, so programs without an interpreter would need a second way;
- an archive by shiv 1.0: 0.21 s, and 5.8 s the first time, when it unpacks itself into the user's home,
  which a service does not have.

Like a compiled wheel, a package is for one minor release of Python, so for one release of Debian.
"""

from __future__ import annotations

import compileall
import platform
import py_compile
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from textwrap import dedent
from typing import Final

ROOT: Final = Path(__file__).parents[1]
EXTRAS: Final = "topic,top,zookeeper"
"""Extras for operators, who have no pip there. Those of conformance and the pipeline are much larger."""
PYTHON: Final = f"python3.{sys.version_info.minor}"
HOME: Final = "opt/weir"
COMMAND: Final = f"#!/{HOME}/bin/{PYTHON}\nimport sys\n\nfrom weir.cli.main import main\n\nsys.exit(main())\n"
SCRIPTS: Final = {
    "conffiles": "/etc/weir/quotas.toml\n/etc/weir/weir.toml\n",
    # An upgrade restarts a running service, as Debian's do. The first start comes after the configuration.
    "postinst": """\
        #!/bin/sh
        set -e
        if [ -d /run/systemd/system ]; then
          systemctl daemon-reload
          if [ "$1" = configure ] && [ -n "$2" ]; then systemctl try-restart weir.service; fi
        fi
        """,
    "prerm": """\
        #!/bin/sh
        set -e
        if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl disable --now weir.service; fi
        """,
    "postrm": """\
        #!/bin/sh
        set -e
        if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
        """,
}


def control(wheel: Path, size_kb: int) -> str:
    """Return the package's description. The version is the wheel's."""
    version = wheel.name.split("-")[1]
    libc = platform.libc_ver()[1]
    return dedent(f"""\
        Package: weir
        Version: {version}
        Architecture: {architecture()}
        Maintainer: Weir's maintainers <weir@localhost>
        Depends: {PYTHON}, libc6 (>= {libc})
        Recommends: ca-certificates
        Installed-Size: {size_kb}
        Section: net
        Priority: optional
        Description: Kafka proxy that enforces Kafka's quotas on the wire
         Weir stands in front of unmodified brokers. Write /etc/weir/weir.toml, then
         start the service: systemctl enable --now weir
        """)


def architecture() -> str:
    """Return Debian's name of this machine's architecture."""
    return _run("dpkg", "--print-architecture")


def fill(root: Path, wheel: Path) -> None:
    """Write the package's files below `root`."""
    home = root / HOME
    libraries = home / "lib" / PYTHON / "site-packages"
    options = (
        "--quiet",
        "--disable-pip-version-check",
        "--no-compile",
        "--constraint",
        ROOT / "constraints.txt",
    )
    _run(sys.executable, "-m", "pip", "install", *options, "--target", libraries, f"{wheel}[{EXTRAS}]")
    shutil.rmtree(libraries / "bin")
    # Without a look at the sources' times: the service could not write newer ones here.
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    compileall.compile_dir(libraries, quiet=2, stripdir=root, prependdir="/", invalidation_mode=unchecked)
    (home / "bin").mkdir()
    (home / "bin" / PYTHON).symlink_to(f"/usr/bin/{PYTHON}")
    (home / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    (home / "bin/weir").write_text(COMMAND)
    (home / "bin/weir").chmod(0o755)
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/weir").symlink_to(f"/{HOME}/bin/weir")
    _copy(ROOT / "deploy/weir.service", root / "usr/lib/systemd/system")
    for file in ("weir.toml", "quotas.toml"):
        _copy(ROOT / "deploy/config" / file, root / "etc/weir")
    (root / "usr/share/doc/weir").mkdir(parents=True)
    shutil.copyfile(ROOT / "LICENSE", root / "usr/share/doc/weir/copyright")


def build(wheel: Path, folder: Path) -> Path:
    """Make the package in a folder; return its path. Raises CalledProcessError, OSError."""
    with tempfile.TemporaryDirectory(prefix="weir-debian-") as name:
        root = Path(name)
        root.chmod(0o755)  # it becomes the mode of /
        fill(root, wheel)
        size_kb = sum(path.lstat().st_size for path in root.rglob("*")) // 1000
        (root / "DEBIAN").mkdir()
        for script, text in SCRIPTS.items():
            file = root / "DEBIAN" / script
            file.write_text(dedent(text))
            file.chmod(0o644 if script == "conffiles" else 0o755)
        (root / "DEBIAN/control").write_text(control(wheel, size_kb))
        folder.mkdir(exist_ok=True)
        # Level 1 of xz: 23 MB in 9 s of CPU; the default makes 20 MB in 50 s.
        made = _run("dpkg-deb", "-z1", "--root-owner-group", "--build", root, folder)
    print(made)
    return folder / f"weir_{wheel.name.split('-')[1]}_{architecture()}.deb"


def _copy(file: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(file, folder / file.name)


def _run(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    return done.stdout.strip()


if __name__ == "__main__":
    build(Path(sys.argv[1]), ROOT / "dist")
