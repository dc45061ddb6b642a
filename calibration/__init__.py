"""Measuring what requests cost a broker, for `weir calibrate`: the conversation with it.

The arithmetic is in `quotas.calibration` and `quotas.cost_fitting`. Here: what is asked (`cases`, `bodies`,
`frames`, `batches`), how often and until when (`load`), what tells the cost (`probe`: the broker's own
request quota; `jmx`: an exporter's metrics), what of ours is at the broker meanwhile (`fixture`), and all in
order (`run`).
"""
