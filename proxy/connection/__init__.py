"""A client connection and the broker connection behind it, as a machine without I/O: bytes, events and a time
in, effects out.

`state` has the states and their transitions, `connection` the machine, `inbound` and `outbound` the halves
that process the bytes of each side, `effects` the interface to the transport, `in_flight` the records of
requests, `charges` request time and usage, `emptied` fetch responses without their records, `tokens` bare
SASL tokens.
"""
