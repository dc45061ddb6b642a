"""deploy/weir.service: it tells systemd when Weir is ready and alive, and limits the process."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.systemd_unit import UNIT, service
from weir.proxy.config.config import CONNECT_TIMEOUT_S
from weir.proxy.control.systemd import Systemd

SYSTEMD_ANALYZE = shutil.which("systemd-analyze")
NEEDS_SYSTEMD = pytest.mark.skipif(SYSTEMD_ANALYZE is None, reason="needs systemd-analyze (Debian: systemd)")
EXPOSURE_MAX = 15
"""Largest exposure of the unit, in tenths of systemd's scale from 0 to 10. Below 20 is OK."""
SANDBOX = {
    "DynamicUser": "yes",
    "UMask": "0077",
    "CapabilityBoundingSet": "",
    "AmbientCapabilities": "",
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectClock": "yes",
    "ProtectHostname": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectControlGroups": "yes",
    "ProtectProc": "invisible",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX AF_NETLINK",
    "RestrictNamespaces": "yes",
    "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes",
    "LockPersonality": "yes",
    "MemoryDenyWriteExecute": "yes",
    "RemoveIPC": "yes",
    "SystemCallArchitectures": "native",
    "SystemCallErrorNumber": "EPERM",
}
"""Settings of the unit that limit a Weir which an attacker controls."""


def test_the_systemd_unit_waits_for_ready_and_restarts_a_weir_whose_event_loop_stops() -> None:
    unit = service()["Service"]
    assert (unit["Type"], unit["NotifyAccess"]) == ("notify", "main")
    assert unit["ExecReload"] == "kill -HUP $MAINPID", "which reads quotas and configuration again"
    assert int(unit["TimeoutStartSec"].removesuffix("s")) > CONNECT_TIMEOUT_S
    watchdog_s = int(unit["WatchdogSec"].removesuffix("s"))
    told = Systemd.of({"NOTIFY_SOCKET": "/run/notify", "WATCHDOG_USEC": str(watchdog_s * 1_000_000)}, 7)
    assert told.watchdog_s == watchdog_s >= 30
    assert shlex.split(unit["ExecStart"])[0] == "/opt/weir/bin/weir", "the main process, which may notify"


def test_the_systemd_unit_has_every_line_of_its_sandbox() -> None:
    unit = service()["Service"]
    assert {name: unit.get(name) for name in SANDBOX} == SANDBOX
    filters = re.findall(r"^SystemCallFilter=(.*)$", UNIT.read_text("utf-8"), re.MULTILINE)
    assert filters == ["@system-service", "~@privileged @resources"]
    writable = [name for name in unit if name.endswith("Directory") or name == "ReadWritePaths"]
    assert writable == ["StateDirectory"], "Weir writes nowhere else"


@NEEDS_SYSTEMD
def test_systemd_accepts_the_unit_without_a_warning(tmp_path: Path) -> None:
    text = UNIT.read_text("utf-8").replace("/opt/weir/bin/weir", shutil.which("true") or "/bin/true")
    (tmp_path / "weir.service").write_text(text)
    done = systemd_analyze("verify", "--man=no", "--recursive-errors=no", str(tmp_path / "weir.service"))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@NEEDS_SYSTEMD
def test_systemd_rates_the_exposure_of_the_unit_as_low() -> None:
    done = systemd_analyze(
        "security", "--offline=true", f"--threshold={EXPOSURE_MAX}", "--no-pager", str(UNIT)
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"Overall exposure level for weir.service: \d\.\d OK", done.stdout), done.stdout


def systemd_analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert SYSTEMD_ANALYZE is not None
    return subprocess.run([SYSTEMD_ANALYZE, *arguments], capture_output=True, text=True, check=False)
