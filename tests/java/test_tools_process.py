"""Kafka's tools in one Java process: each call is like a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.clients import ClientError
from tests.java.tools_process import ToolsProcess, can_run, run_tool
from tests.kafka import locked_versions
from tests.kafka.waiting import eventually, is_gone

pytestmark = pytest.mark.broker  # not for the brokers: for what it takes to start Java

TOOL = "kafka.admin.ConsumerGroupCommand"
NEW_TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PATIENCE_S = 60.0
SILENT_PORT = "127.0.0.1:1"


@pytest.mark.parametrize("release", [release for release in locked_versions() if can_run(release)])
def test_status_and_output_are_those_of_one_call(release: str) -> None:
    tool = TOOL if release.startswith(("1.", "2.")) else NEW_TOOL
    first = run_tool(release, tool, ["--nonsense"], PATIENCE_S)
    second = run_tool(release, tool, ["--bootstrap-server", SILENT_PORT], PATIENCE_S)
    assert first.status == second.status == 1
    assert "nonsense" in first.out + first.err
    assert "nonsense" not in second.out + second.err


def test_a_class_that_is_not_there_is_told() -> None:
    said = run_tool("3.9.1", "no.Such", [], PATIENCE_S)
    assert said.status == 1
    assert "ClassNotFoundException: no.Such" in said.err


def test_after_a_call_that_hangs_the_next_one_is_answered() -> None:
    with pytest.raises(ClientError, match="hung"):
        run_tool("3.9.1", NEW_TOOL, ["--bootstrap-server", SILENT_PORT, "--list"], 0.0)
    assert run_tool("3.9.1", NEW_TOOL, ["--nonsense"], PATIENCE_S).status == 1


def test_a_tools_process_that_was_killed_says_so() -> None:
    process = ToolsProcess("3.9.1")
    os.killpg(process.pids[0], signal.SIGKILL)
    with pytest.raises(ClientError, match="failed"):
        process.call(NEW_TOOL, [], PATIENCE_S)
    process.close()


def test_tools_end_with_their_owner() -> None:
    code = (
        "import signal; from tests.java.tools_process import ToolsProcess; p = ToolsProcess('3.9.1');"
        "print(*p.pids, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pids = [int(pid) for pid in owner.stdout.readline().split()]
        owner.kill()
    assert len(pids) == 2
    assert eventually(lambda: all(map(is_gone, pids)))
