"""CPU time and memory of a process and its child processes."""

from __future__ import annotations

import subprocess
import sys

from bench.cpu import cpu_s, rss_bytes

PARENT = """\
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(child.stdout.readline().decode(), end="", flush=True)
input()
child.communicate()
"""
CHILD = """\
import time
memory = b"x" * 100_000_000
while time.process_time() < 0.3: pass
print("used", flush=True)
input()
"""


def test_cpu_time_and_memory_of_child_processes_count() -> None:
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"used\n"
        assert cpu_s(parent.pid) > 0.3
        assert rss_bytes(parent.pid) > 100_000_000
        parent.communicate(b"end\n")
