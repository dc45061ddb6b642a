"""The recorded tour of docs/tour.md: what an operator sees of Weir in front of a real Kafka broker.

`python -m tools.tour` starts Kafka, Weir and four clients, waits until the charts have some minutes, and
writes the page and its pictures with the numbers of this run. It needs Java, Chromium, and the extras of
`make install`. `prometheus` in the PATH (Debian's package `prometheus`) also evaluates the dashboard.

- `scene` runs Kafka, Weir and the clients. `quotas.toml` has their quotas.
- `pictures` takes pictures of the admin endpoint's page, and changes a quota there. `terminal` draws
  `weir top`.
- `prometheus` runs a Prometheus, also for tests. `dashboard` asks it for each panel and alert.
- `text` fills `tour.md.j2`.
"""
