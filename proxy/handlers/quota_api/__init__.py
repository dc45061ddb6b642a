"""DescribeClientQuotas and AlterClientQuotas, answered by Weir (KIP-546).

`client_quotas` decides and answers, `quota_admin` is the way to the table and its store, `alterations`,
`filters` and `entities` read and write the messages. It is the example of an answer that takes a store
(`Defer`) and of a query after which the request is decided about again.

An admin is answered only after the broker has just answered that connection, a round trip per request: Weir
checks no credentials, and a belief of its own would be a way in. Requests of other clients are denied unread,
and the connection is closed at one above 16 KB.
"""

# mypyc: skip, because these requests are rare, so compiling would only make the build longer.
