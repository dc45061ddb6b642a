"""DescribeClientQuotas and AlterClientQuotas, answered by Weir (KIP-546).

`client_quotas` decides and answers. `quota_admin` is the interface to the quota table and its store.
`alterations`, `filters` and `entities` read and write the messages. The package is the example of a query
that waits for a store (`wait_for`), and of a query after which the request is decided about again.

Before Weir changes quotas or describes them to an admin, it sends the broker a request on the same connection
and waits for the answer. This costs a round trip per request. Weir checks no credentials, so without the
broker's answer a client could pretend to be an admin. Requests of other clients are denied unread, and the
connection is closed at one above 16 KB.
"""

# mypyc: skip, because these requests are rare, so compiling would only make the build longer.
