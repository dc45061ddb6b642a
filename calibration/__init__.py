"""`weir calibrate`: measure the request costs of a broker by sending requests to it.

`cases`, `bodies`, `frames` and `batches` make the requests; `load` repeats one request on a connection;
`probe` (the broker's own request quota) and `jmx` (an exporter's metrics) read the time that the requests
took; `fixture` creates and deletes the topic and the group that the requests need; `run` puts all in order.
The arithmetic is in `quotas.calibration` and `quotas.cost_fitting`.
"""
