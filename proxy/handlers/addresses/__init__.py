"""Brokers' addresses in responses, replaced by Weir's own.

`rewrite` has a function per kind of response, and a new address field goes there. Fields that clients do not
connect to stay: controllers' listeners, values of settings, endpoints of applications. `docs/security.md` has
the reasons, and a test finds fields without one. NodeEndpoints of a response larger than the buffer are
masked by another tag and zeros, because the frame's length is sent already; a client without this hint asks
for metadata, as before KIP-951.
"""
