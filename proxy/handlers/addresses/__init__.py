"""Replace brokers' addresses in responses by Weir's own.

`rewrite` has a function per kind of response; a new address field belongs there. Addresses that clients do
not connect to are not replaced: controllers' listeners, values of settings, endpoints of applications.
`docs/background/security.md` has the reasons, and a test finds address fields that are neither replaced nor
explained there. NodeEndpoints of a response larger than the buffer are masked: a tag that no client knows and
zeros are written over them, because the frame's length was sent already. NodeEndpoints tells the client the
new leaders' addresses; without them the client asks for metadata, as before KIP-951. Rejected: buffering such
a response until it is complete. A client can make share fetch and produce responses as long as it likes.
"""
