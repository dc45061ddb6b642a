"""Measuring what requests cost a broker, for `weir calibrate`: the conversation with it.

The arithmetic is in `quotas.calibration` and `quotas.cost_fitting`. Here: the requests (`cases`, `bodies`,
`frames`, `batches`), their repetition (`repeat`) on a connection (`line`), the measuring instrument
(`instrument`: the broker's own request quota; `jmx`: an exporter's metrics), the calibrator's own topic and
group at the broker (`lab`), and the order of all steps (`run`).

Costs that cannot be measured are scaled by the median factor of the measured ones: a broker that is slower in
all of these is hardly as fast in the others.
"""
