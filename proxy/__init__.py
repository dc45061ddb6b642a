"""The running proxy: joins Kafka's bytes (`protocol`) and the quota rules (`quotas`) on real sockets.

A client connection is a synchronous state machine without I/O (`connection`). Capabilities (`handlers`)
decide about its frames, and `net` moves the bytes. Trio runs listeners, connecting and shutdown (`server`).
`control` has the quotas in force, `admin` serves operators, `config` checks the settings, `run` starts all
parts.

All packages may import the modules at this level: `addresses` (brokers' addresses, and Weir's listeners for
them), `counters`, `close_reasons`, `logs` and `log_writer` (log lines, and the thread that writes them),
`file_watch`, `atomic_write`.

- An internal error closes only the connection in which it occurred, with a stack trace in the log and a
  close reason of its own: a bug must not end other connections.
- A broker's listener is open before the response that names the broker is sent, so that no client connects
  too early.
- TCP keepalive ends connections whose peer has vanished. Log lines that peers can cause are limited to one a
  second of each kind.
"""

import sys
from types import ModuleType

if "structlog" not in sys.modules:
    # structlog would import rich, for tracebacks that Weir does not print (`logs`), and asyncio, for methods
    # that Weir does not call: together 4 MB in each process, and a fifth of its start. None stands for a
    # module that cannot be imported.
    _stubs = {"rich": None, "asyncio": ModuleType("asyncio")}
    _used = {name: stub for name, stub in _stubs.items() if name not in sys.modules}
    sys.modules.update(_used)  # type: ignore[arg-type]  # the declared type lacks the documented None
    import structlog  # noqa: F401  # only to import it now

    for _name in _used:
        del sys.modules[_name]
