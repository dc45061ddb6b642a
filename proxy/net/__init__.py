"""Byte transport: the reactor, the two sockets of a relay, the drivers. Knows no Kafka.

`reactor` reports ready sockets and timers, `relay` moves the bytes of one connection and obeys its effects,
`side` is one of its sockets and the protocol that a new kind of socket must have, `drivers` run the reactor
as the host of Trio (`weir run`) or as a Trio task (tests). `tls_relay` and `tls_socket` add TLS.

- Sockets are level-triggered, and TLS may have decrypted bytes that no poll reports. They are read in the
  next turn, by a timer: within the turn, one busy client would starve the others.
- One receive buffer of 256 KB serves all sockets, so idle connections need no memory for reading.
"""
