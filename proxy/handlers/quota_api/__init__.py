"""DescribeClientQuotas and AlterClientQuotas, answered by Weir (KIP-546).

`client_quotas` decides and answers. `quota_admin` is the interface to the quota table and its store.
`alterations`, `filters` and `entities` read and write the messages. The package is the example of a response
that waits for a store (`Defer`), and of a query after which the request is decided about again.

Weir answers an admin only after the broker has just answered a request on the same connection, which costs a
round trip per request: Weir checks no credentials, so a client could otherwise pretend to be an admin.
Requests of other clients are denied unread, and the connection is closed at one above 16 KB.
"""

# mypyc: skip, because these requests are rare, so compiling would only make the build longer.
