"""Draw the README's pictures: `python -m tools.pictures [cost] [demo] [report]`, or `make pictures`.

- `cost` draws docs/images/cost.svg from the table in docs/background/performance.md. It has no figures of its
  own, so a new measurement needs only this command.
- `demo` runs the demonstration, forty seconds. docs/images/demo.svg is its output, and
  docs/images/before-after.svg the rate of its producer `steady` in each second.
- `report` runs the pipeline on generated records, and takes pictures of its report.

`browser` drives Chromium, also in tests and for `tools.tour`, which makes the other pictures.

Every drawn picture says when its figures were measured. Pictures are opaque, and drawn for a light and for a
dark background: GitHub shows them on either, and need not tell a picture which.
"""
