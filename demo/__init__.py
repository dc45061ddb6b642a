"""The demonstration of forty seconds: real producers and consumers with quotas, through Weir.

Three processes take part: a Kafka cluster (librdkafka's mock cluster, or an existing one), Weir, and this
process, whose threads are the clients. `run.run` is the entry point. Import it late: it needs
confluent-kafka, an optional dependency.
"""
