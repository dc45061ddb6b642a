"""The running proxy: joins Kafka's bytes (`protocol`) and the quota rules (`quotas`) on real sockets.

The rules of one client connection are a synchronous state machine without I/O (`session`); `reactor` and
`relay` move the bytes; Trio owns listeners, discovery, configuration and shutdown (`server`).
"""
