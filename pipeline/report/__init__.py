"""Report the pipeline's tables as one HTML page that needs no network.

`data` reads a bounded number of values by Spark (`model`). `page` renders them through a Jinja2 template,
with figures and charts from `view` and with `actions`, all without Spark. Clients choose their names: the
template escapes all text, and `names` makes invisible characters visible.
"""
