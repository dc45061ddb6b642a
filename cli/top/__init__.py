"""`weir top`: entities, connections and brokers of a running Weir in a terminal.

All data come from the JSON API of the admin endpoint (`readings`). `cells` and `detail` turn its records into
text, for the program and for `--once`. Only `program` needs textual, an optional dependency: `--once` and
`--json` work without it.
"""
