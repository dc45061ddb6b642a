"""Draw the README's pictures: `python -m tools.pictures [cost] [demo]`, or `make pictures`.

- `cost` draws docs/images/cost.svg from the table in docs/background/performance.md. It has no figures of its
  own, so a new measurement needs only this command.
- `demo` runs the demonstration, forty seconds. docs/images/demo.svg is its output, and
  docs/images/before-after.svg the rate of its producer `steady` in each second.

Every picture says when its figures were measured. Pictures are opaque, and drawn for a light and for a dark
background: GitHub shows them on either, and need not tell a picture which.
"""
