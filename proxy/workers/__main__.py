"""Entry point of a worker process: `python -m weir.proxy.workers DESCRIPTOR VERSION`.

VERSION is the supervisor's. If the files on disk have another version now, the process ends with the exit
code `REPLACED`: the two might not understand each other.
"""

import gc
import sys

from weir.proxy.build import VERSION
from weir.proxy.workers.exit_codes import REPLACED

if sys.argv[2:] != [VERSION]:
    sys.exit(REPLACED)

# As in `collect_garbage`. Modules live on; looking at all of them while they load is a tenth of the start.
gc.set_threshold(*gc.get_threshold()[:2], 2**31 - 1)

from weir.proxy.workers.worker import main  # noqa: E402  # other files may not fit together

main(int(sys.argv[1]))
