"""Replace brokers' addresses in responses by Weir's own.

`rewrite` has a function per kind of response; a new address field belongs there. Addresses that clients do
not connect to are not replaced: controllers' listeners, values of settings, endpoints of applications.
`docs/background/security.md` has the reasons, and a test finds address fields without one. NodeEndpoints of a
response
larger than the buffer are masked: another tag and zeros are written over them, because the frame's length was
sent already. A client without this hint asks for metadata, as before KIP-951.
"""
