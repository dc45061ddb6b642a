"""Entry point of a worker process: `python -m weir.proxy.workers DESCRIPTOR VERSION`.

VERSION is the supervisor's. If the files on disk have another version now, the process ends with the exit
code `REPLACED`: the two might not understand each other.
"""

import sys

from weir.proxy.build import VERSION
from weir.proxy.workers.exit_codes import REPLACED

if sys.argv[2:] != [VERSION]:
    sys.exit(REPLACED)

from weir.proxy.workers.worker import main  # other files may not fit together

main(int(sys.argv[1]))
