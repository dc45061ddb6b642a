"""Brokers' addresses in responses, replaced by Weir's own.

`rewrite` has a function per kind of response, and a new address field goes there. Controllers' addresses
(DescribeQuorum from v2 on, DescribeCluster of controllers) stay: clients do not connect to them through Weir.
NodeEndpoints of a response larger than the buffer are masked by changing their tag, because the frame's
length is sent already; a client without this hint asks for metadata, as before KIP-951.
"""
