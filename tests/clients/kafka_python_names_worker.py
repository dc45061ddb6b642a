"""`kafka_python_worker.py`, to which hosts are where a file says: its name is the one argument.

The file is like /etc/hosts. Nothing else is resolved, no address either: what a job does shows that the
library calls servers by those names alone.
"""

import runpy
import socket
import sys
from pathlib import Path
from typing import Any

_resolve = socket.getaddrinfo


def main() -> None:
    """Do the jobs on stdin, as `kafka_python_worker.py` does."""
    lines = [line.split() for line in Path(sys.argv[1]).read_text("utf-8").splitlines()]
    addresses = {name: address for address, *names in lines for name in names}

    def resolve(host: str, *rest: Any, **options: Any) -> Any:
        if host not in addresses:
            raise socket.gaierror(socket.EAI_NONAME, f"{host} is not in the file of hosts")
        return _resolve(addresses[host], *rest, **options)

    socket.getaddrinfo = resolve  # type: ignore[assignment]  # of its options, the library names none
    runpy.run_path(str(Path(__file__).with_name("kafka_python_worker.py")), run_name="__main__")


if __name__ == "__main__":
    main()
