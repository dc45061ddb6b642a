"""Compare the request time that Weir charges with the request time that real brokers measure (JMX)."""
