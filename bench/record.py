"""Write all measurements as JSON, with the kind of machine and the versions, so that runs can be compared."""

from __future__ import annotations

import os
import platform
import ssl
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench import broker
from bench.load import Measured
from bench.measure import Results
from bench.report import Outcome

_TREE: Final = Path(__file__).parent.parent
_CPU_MODEL: Final = "model name"


def as_json(outcome: Outcome, options: Mapping[str, object]) -> dict[str, object]:
    """Return the outcome and its options in a form for `json.dumps`. Nothing in it identifies the machine."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine() | {"load_average_before": outcome.load_average},
        "versions": versions(outcome.load),
        "options": dict(options),
        "missing": outcome.load.missing,
        "cells": _cells(outcome.load),
        "tls": _cells(outcome.tls),
        "sasl": _cells(outcome.sasl),
        "entities": _cells(outcome.entities),
        "idle": {
            name: asdict(idle) | {"connection_bytes": idle.connection_bytes}
            for name, idle in outcome.idle.items()
        },
    }


def _cells(results: Results) -> list[dict[str, object]]:
    return [
        {"row": row, "target": target, "rounds": [_figures(cell) for cell in cells]}
        for (row, target), cells in results.cells.items()
    ]


def _figures(cell: Measured) -> dict[str, float | None]:
    return {
        **asdict(cell),
        "requests_per_s": cell.requests_per_s,
        "cpu_us": cell.cpu_us,
        "generator_busy": cell.generator_busy,
    }


def machine() -> dict[str, object]:
    """Return the properties of the machine that the figures depend on: CPU, memory, kernel."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "architecture": platform.machine(),
        "kernel": platform.release(),
    }


def _cpu_model() -> str | None:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(_CPU_MODEL):
            return line.partition(":")[2].strip()
    return None


def versions(results: Results) -> dict[str, str | None]:
    """Return the versions of Weir (its commit), Python, OpenSSL, Kafka and every measured target, by name."""
    found = {target.name: target.version() for target in results.present if target.missing() is None}
    told = {name: version for name, version in found.items() if version is not None}
    ours = {"weir": commit(), "python": platform.python_version(), "openssl": ssl.OPENSSL_VERSION}
    return {**ours, "kafka": broker.VERSION, **told}


def summary(outcome: Outcome, options: Mapping[str, object]) -> str:
    """Return a summary of the run for readers: date, machine, number and duration of rounds, versions."""
    where, found = machine(), versions(outcome.load)
    kernel = ".".join(platform.release().split(".")[:2])
    named = ("weir", "python", "openssl", "kafka")
    told = "".join(f", {name} {version}" for name, version in found.items() if name not in named)
    upstream = f"Kafka {found['kafka']}" if options["upstream"] == "kafka" else options["upstream"]
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {where['cores']} cores ({where['cpu'] or where['architecture']}), "
        f"Linux {kernel}, Python {found['python']}, {options['rounds']} rounds of {options['seconds']} s "
        f"in front of {upstream}. Other versions: Weir {found['weir']}{told}."
    )


def commit(tree: Path = _TREE) -> str | None:
    """Return the commit of the measured checkout, with `-dirty` if files were changed; None outside a Git
    repository.
    """
    command = ["git", "-C", str(tree), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None
