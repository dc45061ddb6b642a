"""Measure the request time that a broker spends on each request, for `weir calibrate`.

This package talks to the broker; the arithmetic is in `quotas.costs`. `cases`, `bodies`, `frames` and
`batches` make the requests, `load` repeats a request on a connection, and `broker_connection` sends requests
that are not measured. A probe reads the cost: `probe` from the broker's request quota, or `jmx` from an
exporter's metrics. `fixture` creates and deletes the calibrator's topic and group, and `run` has the order of
all steps.

Costs that cannot be measured are scaled by the median ratio of measured to assumed costs, because a broker
that is slower for all measured requests is most likely also slower for the others.
"""
