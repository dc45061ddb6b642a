"""The running proxy: joins Kafka's bytes (`protocol`) and the quota rules (`quotas`) on real sockets.

A client connection is a synchronous state machine without I/O (`connection`); `net` moves the bytes; Trio
runs listeners, discovery, configuration and shutdown (`server`).
"""
