"""`python -m tests.fuzz --seconds 60`; `python -m tests.fuzz codecs --seed 7`; `… codecs --repeat FILE`.

Fuzzes every target in turn. Equal seeds and `--runs` give equal inputs. A finding stays in
build/fuzz/TARGET/, and the end says how to repeat it. `--keep` replaces the inputs in
tests/fuzz/corpus/TARGET/ by those that this search found, reduced.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import structlog

from tests.fuzz.guided import Search, search
from tests.fuzz.kept import keep, kept_inputs, reduced
from tests.fuzz.targets import TARGETS

if TYPE_CHECKING:
    from tests.fuzz.guided import Finding
    from tests.fuzz.target import Target

DIRECTORY: Final = Path("build") / "fuzz"


def main() -> None:
    """Run the targets. The status is 1 if one has a finding."""
    options = _options()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    if options.repeat is not None:
        TARGETS[options.targets[0]].run(options.repeat.read_bytes())
        print("no error")
        return
    names = options.targets or list(TARGETS)
    failed = False
    for number, name in enumerate(names, 1):
        print(f"{number}/{len(names)} {name}", end=": ", flush=True)
        found = _search(TARGETS[name], options.seed, options.seconds, options.runs)
        print(f"{found.inputs} inputs, {len(found.branches.reached)} branches", flush=True)
        if options.keep:
            inputs = reduced(found)
            keep(name, inputs)
            print(f"  {len(inputs)} inputs kept, {sum(map(len, inputs))} bytes", flush=True)
        for place, finding in found.findings.items():
            failed = True
            print(f"{place}\n{finding.error}repeat: {_repeat(name, finding)}")
    raise SystemExit(failed)


def _search(target: Target, seed: int, seconds: float, runs: int) -> Search:
    kept = kept_inputs(target.name)
    if runs:
        return search(target, seed, runs, kept)
    found = Search(target, seed)
    found.begin(kept)
    end_s = time.monotonic() + seconds
    found.go_on(lambda: time.monotonic() < end_s)
    return found


def _repeat(name: str, finding: Finding) -> str:
    """Write the input into a file; return the command that runs it."""
    file = DIRECTORY / name / hashlib.sha256(finding.data).hexdigest()[:16]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(finding.data)
    return f"python -m tests.fuzz {name} --repeat {file}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(TARGETS)}; default: all")
    parser.add_argument("--seconds", type=float, default=60, help="time per target")
    parser.add_argument("--runs", type=int, default=0, help="number of inputs per target, instead of a time")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal inputs")
    parser.add_argument("--keep", action="store_true", help="replace the kept inputs by those of this search")
    parser.add_argument("--repeat", type=Path, metavar="FILE", help="run one target with this input")
    options = parser.parse_args()
    unknown = set(options.targets) - TARGETS.keys()
    if unknown:
        parser.error(f"no target is called {', '.join(sorted(unknown))}")
    if options.repeat is not None and len(options.targets) != 1:
        parser.error("--repeat needs one target")
    return options


if __name__ == "__main__":
    main()
