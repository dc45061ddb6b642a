"""Byte transport: the reactor, the two sockets of a relay, the drivers. Knows no Kafka."""
