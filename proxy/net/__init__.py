"""Byte transport: the reactor, the two sockets of a relay, the drivers. Knows no Kafka.

`reactor` reports ready sockets and timers. `relay` moves the bytes of one connection, and closes
sockets or stops reading as the connection says; `side` has one of its two sockets, and the interface that
each kind of socket must have. `drivers` run the reactor as the host of Trio (`weir run`) or as a Trio task
(tests). `splicing` moves the rest of large frames within the kernel. `tls_relay`, `tls_socket` and `tls` add
TLS.

- Sockets are level-triggered, but TLS may hold decrypted bytes that no poll reports. These bytes are read in
  the next turn (pass of the reactor's loop), by a timer: within the same turn, one busy client would delay
  all others.
- One receive buffer of 256 KB serves all sockets, so idle connections need no memory for reading.
"""
