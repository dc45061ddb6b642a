"""Measuring what requests cost a broker, for `weir calibrate`: the conversation with it.

The arithmetic is in `quotas.costs`. Here: the requests (`cases`, `bodies`,
`frames`, `batches`), the load of repeated requests (`load`) on a connection (`broker_connection`), the probe
that reads their cost (`probe`: the broker's own request quota; `jmx`: an exporter's metrics), the
calibrator's own topic and group at the broker (`fixture`), and the order of all steps (`run`).

Costs that cannot be measured are scaled by the median factor of the measured ones: a broker that is slower in
all of these is hardly as fast in the others.
"""
