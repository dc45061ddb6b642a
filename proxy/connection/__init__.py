"""One client connection and its broker's, as a machine without I/O: bytes, events and a time in, effects out.

`state` has the states and their transitions, `connection` the machine, `inbound` and `outbound` its halves
that judge bytes, `effects` the orders to the transport, `in_flight` the requests under way, `charges` request
time and usage, `emptied` the responses that lose their records, `tokens` bare SASL tokens.
"""
