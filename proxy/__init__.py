"""The running proxy: joins Kafka's bytes (`protocol`) and the quota rules (`quotas`) on real sockets.

A client connection is a synchronous state machine without I/O (`connection`). Capabilities decide about its
frames (`handlers`), and `net` moves the bytes. Trio runs listeners, connecting and shutdown (`server`).
`control` has the quotas in force, `admin` serves operators, `config` checks the settings, `run` starts all.

Modules at this level are known to all floors: `addresses` (brokers' addresses, and Weir's listeners for
them), `counters`, `close_reasons`, `logs`, `file_watch`, `atomic_write`.

- An internal error closes the connection that met it, with a stack trace in the log and a close reason of
  its own: other connections must not pay for a bug.
- A broker's listener is bound within the reactor's turn, before the response that names it is sent: no
  client can be faster than its listener.
- Half-open peers end by TCP keepalive. Log lines that peers can cause are one a second of a kind.
"""
