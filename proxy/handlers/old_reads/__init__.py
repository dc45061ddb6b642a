"""Rates of old reads (`old_read_byte_rate`): fetched bytes of record batches that are older than
`old_read_age_s`, which brokers read from disk.

Old bytes are charged when a response has passed. Only a connection whose latest answer had old bytes waits:
the throttle time is in that response or, if its head has been forwarded, in the response to the next fetch,
which gets no records. So consumers at the end of their topics never wait, whatever others read.

- Headers of batches are read, never records. Responses are not scanned for clients without a rate.
- Timestamps are set by producers, or by brokers (`message.timestamp.type`), and are compared with Weir's
  clock. A topic with event time may be old from the beginning. Batches without timestamps are not old.
- Share fetches are not scanned.
- A client that opens a connection for each fetch escapes: limit its connections.
- One age holds for all entries, because a response is scanned once.
"""
