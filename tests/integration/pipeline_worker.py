"""`python -m tests.integration.pipeline_worker DIRECTORY`: runs the `weir …` whose arguments come as JSON.

Prints what became of each as JSON; in the directory, and in one process, so that Java starts once.
"""

from __future__ import annotations

import os
import sys

import msgspec
from click.testing import CliRunner

from tests.integration.pipeline_jobs import Ended
from weir.cli.main import weir


def main() -> None:
    all_arguments = msgspec.json.decode(sys.stdin.buffer.read(), type=list[list[str]])
    os.chdir(sys.argv[1])
    ended = []
    for arguments in all_arguments:
        done = CliRunner().invoke(weir, arguments)
        ended.append(Ended(done.exit_code, done.stdout, done.stderr))
    sys.stdout.buffer.write(msgspec.json.encode(ended))


if __name__ == "__main__":
    main()
