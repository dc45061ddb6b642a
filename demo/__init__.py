"""The half-minute demonstration: real producers and consumers, with quotas, through Weir.

Three processes take part: a Kafka cluster (librdkafka's mock cluster, or a real one that is there already),
Weir, and this one, whose threads are the clients. `run` is the room's face; it imports confluent-kafka, an
optional dependency, so nothing here does.
"""
