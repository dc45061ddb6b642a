"""A model of Kafka's replication around Weir's connections, in simulated time, and rules that must hold."""
