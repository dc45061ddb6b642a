"""Report the pipeline's tables as one HTML page that needs no network.

`data` reads a bounded number of values by Spark (`model`); `view` chooses sentences, figures, actions and
charts from them, and `page` renders these through a Jinja2 template, both without Spark. Clients choose their
names: the template escapes all text, and `names` makes invisible characters visible.
"""
