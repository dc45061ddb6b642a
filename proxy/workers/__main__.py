"""Entry point of a worker process: `python -m weir.proxy.workers DESCRIPTOR VERSION`."""

import sys

from weir.proxy.workers.worker import main

main(int(sys.argv[1]), sys.argv[2])
