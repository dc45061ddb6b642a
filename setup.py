"""Builds Weir as pyproject.toml says, with a README whose links work in package indexes. With WEIR_COMPILE=1
in the environment mypyc compiles its data path.

Which packages are compiled, and what their types come from, is in pyproject.toml, `[tool.weir.compiled]`. A
module of these that stays interpreted says why in a comment; in an `__init__.py`, for all of its package:

    # mypyc: skip, because it inherits from a class that mypyc does not support.

Only a wheel can be compiled: compiled modules beside the sources of a checkout would be imported instead.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from setuptools import Extension
    from setuptools.command.build_ext import build_ext

WANTED = os.environ.get("WEIR_COMPILE", "0") not in ("", "0")
ROOT = Path(__file__).parent
GROUP = "weir"
"""The compiled code is in one library, `weir__mypyc`; the modules are stubs that load it.

Each module has a C file of its own. One file for all kept one core busy for three minutes, and no object
could be used again. Groups of their own (mypyc's `separate`) would make calls between rooms indirect.
"""


SKIP = re.compile(r"^# mypyc: skip(?:, because (?P<reason>\S.*))?", re.MULTILINE)
"""The mark of a module that stays interpreted, at the beginning of a line."""


def compiled_modules() -> list[str]:
    """The paths of the modules that are compiled: all of the packages but those that say why not.

    Exits if one says no reason.
    """
    reasons = {path: _reason(path) for path in _paths()}
    return [path for path, reason in reasons.items() if reason is None]


def _paths() -> list[str]:
    """The paths of all modules of the packages, and of modules named by themselves, in order of name."""
    places = [
        ROOT.joinpath(*name.split(".")) for name in _pyproject()["tool"]["weir"]["compiled"]["packages"]
    ]
    files = [file for place in places for file in [place.with_suffix(".py"), *place.rglob("*.py")]]
    return sorted(file.relative_to(ROOT).as_posix() for file in files if file.is_file())


def _reason(path: str) -> str | None:
    """Why the module, or a package that it is in, stays interpreted; None if it is compiled."""
    packages = [f"{parent}/__init__.py" for parent in PurePath(path).parents if parent.name]
    marks = (SKIP.search((ROOT / file).read_text("utf-8")) for file in [path, *packages])
    mark = next(filter(None, marks), None)
    if mark is None:
        return None
    if mark["reason"] is None:
        sys.exit(f"{path}: `{mark[0]}` needs a reason: `# mypyc: skip, because ...`")
    reason: str = mark["reason"]
    return reason


def build_requirements() -> list[str]:
    """What must be installed to compile, beside a C compiler."""
    required: list[str] = _pyproject()["tool"]["weir"]["compiled"]["requires"]
    return required


def hindrance() -> str | None:
    """Why nothing can be compiled for this Python here, None if it can."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    includes = f"-I{sysconfig.get_path('include')}"
    try:
        subprocess.run(  # noqa: S603  # the compiler that the user or Python names
            [*command, includes, "-fsyntax-only", "-xc", "-"],
            input="#include <Python.h>\n",
            capture_output=True,
            text=True,
            check=True,
        )
    except OSError as error:
        return f"the C compiler cannot be run: {error}"
    except subprocess.CalledProcessError as error:
        return f"{command[0]} cannot compile for this Python (its headers?): {error.stderr.strip()}"
    return None


def _pyproject() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    return project


def _extensions() -> list[Extension]:
    """Translate the modules to C. Exits with what is wrong if nothing can be compiled here."""
    reason = hindrance()
    if reason is not None:
        _give_up(f"needs a C compiler and Python's headers (Debian: gcc, libc6-dev, python3-dev): {reason}")
    try:
        from mypyc.build import mypycify
    except ImportError:
        _give_up(f"needs {', '.join(build_requirements())}: install them, or let pip isolate the build")
    # Types are checked by `make check`; a cache would be written into the checkout.
    options = ["--config-file=", f"--cache-dir={os.devnull}"]
    extensions: list[Extension] = mypycify(
        [*options, *compiled_modules()], opt_level="3", debug_level="0", group_name=GROUP, multi_file=True
    )
    if os.name == "posix":
        for extension in extensions:  # mypyc asks for -Werror: a newer compiler may warn
            extension.extra_compile_args = [*extension.extra_compile_args, "-Wno-error"]
    return extensions


def _parallel_build() -> type[build_ext]:
    """Return setuptools' command with a C compiler for each core, which uses objects again."""
    import mypyc.build
    from setuptools.command.build_ext import build_ext
    from setuptools.modified import newer_group

    # Other flags or another compiler make all objects old; mypyc writes only the C files that change.
    makers = [str(ROOT / "setup.py"), mypyc.build.__file__]

    class ParallelBuild(build_ext):
        def build_extensions(self) -> None:
            compile_all = self.compiler.compile
            common: list[str] = []
            if sys.platform == "linux":  # elsewhere PCH may be refused
                common = self._headers(max(self.extensions, key=lambda each: len(each.sources)))

            def compiled(source: str, output_dir: str, depends: list[str], options: dict[str, Any]) -> str:
                (built,) = self.compiler.object_filenames([source], output_dir=output_dir)
                if newer_group([source, *depends, *makers], built):
                    compile_all([source], output_dir=output_dir, depends=depends, **options)
                return str(built)

            def compile_parallel(
                sources: list[str], output_dir: str, depends: list[str], **options: Any
            ) -> list[str]:
                options["extra_postargs"] = [*options["extra_postargs"], *common]
                with ThreadPoolExecutor(os.cpu_count()) as pool:
                    return list(pool.map(lambda each: compiled(each, output_dir, depends, options), sources))

            self.compiler.compile = compile_parallel
            super().build_extensions()

        def _headers(self, group: Extension) -> list[str]:
            """Compile the headers that all modules include, once; return the option that uses them."""
            header = Path(self.build_temp, f"{GROUP}.h")
            built = header.with_suffix(".h.gch")
            if newer_group([*group.depends, *makers], str(built)):
                header.parent.mkdir(parents=True, exist_ok=True)
                header.write_text(f'#include "__native_{GROUP}.h"\n#include "__native_internal_{GROUP}.h"\n')
                places = [f"-I{place}" for place in (*group.include_dirs, *self.compiler.include_dirs)]
                what = ["-x", "c-header", str(header), "-o", str(built)]
                self.compiler.spawn([*self.compiler.compiler_so, *places, *group.extra_compile_args, *what])
            return ["-include", str(header)]

    return ParallelBuild


def _give_up(reason: str) -> NoReturn:
    sys.exit(f"WEIR_COMPILE=1 {reason}\nWithout WEIR_COMPILE Weir is installed as pure Python.")


LINK = re.compile(r"(?P<image>!?)(?P<text>\[[^]]*\]\()(?!#|[a-z]+:)(?P<path>[^)\s]+)(?=\))")
"""A relative link or image of a Markdown page, without its last parenthesis."""


def readme(project: dict[str, Any], text: str) -> str:
    """Return the README's text for package indexes: relative links lead to the release's tag in the
    repository, whose URL is `Repository` of `[project.urls]`. Without that setting the text is unchanged.
    """
    repository = project.get("urls", {}).get("Repository", "").rstrip("/")
    if not repository:
        return text

    def absolute(link: re.Match[str]) -> str:
        kind = "raw" if link["image"] else "blob"
        return f"{link['image']}{link['text']}{repository}/{kind}/v{project['version']}/{link['path']}"

    return LINK.sub(absolute, text)


def check_links(package: Path) -> None:
    """Exit with a message if the links in `weir/` were not checked out as links to the rooms."""
    links = [path for path in package.glob("*") if not path.suffix and path.name != "__pycache__"]
    broken = sorted(path.name for path in links if not path.is_dir())
    if broken or not links:
        sys.exit(
            f"{package}: not links to folders: {', '.join(broken) or 'none is there'}. Weir needs symbolic "
            "links: `git config core.symlinks true`, then `git checkout -- weir` (on Windows, use WSL)."
        )


def main() -> None:
    """Run by the build backend once per step, the first of which asks what must be installed for the next."""
    check_links(ROOT / "weir")
    options: dict[str, Any] = {
        "long_description": readme(_pyproject()["project"], (ROOT / "README.md").read_text("utf-8")),
        "long_description_content_type": "text/markdown",
    }
    if WANTED:
        if "editable_wheel" in sys.argv:
            _give_up("does not go with an editable install, which stays pure: see `make compiled`")
        options["setup_requires"] = build_requirements()
        if "bdist_wheel" in sys.argv:
            options["ext_modules"] = _extensions()
            options["cmdclass"] = {"build_ext": _parallel_build()}
            options["options"] = {"build_ext": {"parallel": os.cpu_count()}}
    from setuptools import setup  # a venv need not have it: only who builds does

    setup(**options)


if __name__ == "__main__":
    main()
