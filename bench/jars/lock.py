"""Write the lists of locked jars: `python -m bench.jars.lock [NAME…]`.

Run this to change a version; it needs Maven's `mvn`.
"""

from __future__ import annotations

import re
import sys
from typing import Final

from bench.jars import LISTS
from tests.kafka.lock import write

ROOTS: Final = {
    "kroxylicious": (
        "io.kroxylicious:kroxylicious-runtime:0.12.0",
        "io.netty:netty-transport-native-epoll:4.1.121.Final:linux-aarch_64",
        "org.slf4j:slf4j-simple:2.0.17",
    ),
    "ecj": ("org.eclipse.jdt:ecj:3.33.0",),
    "streams": ("org.apache.kafka:kafka-streams:3.9.1",),
}
"""Maven coordinates by list; each list has the jars that these artifacts need at run time."""
_UNNEEDED: Final = re.compile(r".*:osx-x86_64|.*netty-incubator-transport-native-io_uring:.*")
"""Jars to leave out: native code for macOS on x86-64, and for io_uring, which is off by default."""


if __name__ == "__main__":
    for each in sys.argv[1:] or ROOTS:
        head = f"{' '.join(ROOTS[each])}: written by `python -m bench.jars.lock`"
        write(LISTS / f"{each}.txt", head, ROOTS[each], _UNNEEDED)
