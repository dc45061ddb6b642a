"""Children and their directory end, whatever ends first."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tests.kafka.processes import Processes
from tests.kafka.waiting import ENDED, eventually, is_gone

FOREVER = [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]


def test_children_and_directory_end_on_close() -> None:
    processes = Processes("weir-test-")
    processes.start("a", FOREVER)
    processes.start("b", FOREVER)
    pids = [processes.pid("a"), processes.pid("b")]
    processes.close()
    processes.close()
    assert all(map(is_gone, pids))
    assert not processes.directory.exists()


def test_logs_are_kept_on_demand() -> None:
    processes = Processes("weir-test-")
    processes.start("a", [sys.executable, "-c", "print('the end')"])
    assert processes.wait("a", ENDED) == 0
    processes.close(keep_logs=True)
    assert processes.log("a").read_text() == "the end\n"
    assert not processes.data.exists()
    processes.close()
    assert not processes.directory.exists()


def test_the_status_of_a_child_that_ended_is_known() -> None:
    with closing(Processes("weir-test-")) as processes:
        processes.start("a", FOREVER)
        assert processes.running("a")
        assert processes.exit_status("a") is None
        processes.kill("a")
        assert not processes.running("a")
        processes.start("a", [sys.executable, "-c", "raise SystemExit(3)"])
        assert processes.wait("a", ENDED) == 3


def test_a_name_runs_once() -> None:
    with closing(Processes("weir-test-")) as processes:
        processes.start("a", FOREVER)
        with pytest.raises(ValueError, match="a is running already"):
            processes.start("a", FOREVER)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_children_and_directory_end_with_their_owner(number: signal.Signals) -> None:
    code = (
        "import signal, sys; from tests.kafka.processes import Processes; p = Processes('weir-test-');"
        "p.start('a', sys.argv[1:]); print(p.pid('a'), p.directory, flush=True); signal.pause()"
    )
    with subprocess.Popen([sys.executable, "-c", code, *FOREVER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, _, directory = owner.stdout.readline().strip().partition(" ")
        owner.send_signal(number)
    assert eventually(lambda: is_gone(int(pid)))
    assert eventually(lambda: not Path(directory).exists())
