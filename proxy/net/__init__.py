"""Moving bytes: the reactor, the two sockets of a relay, the drivers that wait for them. No Kafka."""
