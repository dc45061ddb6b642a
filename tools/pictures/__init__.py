"""Make the pictures of README and docs: `python -m tools.pictures [NAME…]`, or all by `make pictures`.

- `cost` draws docs/images/cost.svg from the table in docs/background/performance.md. It has no figures of its
  own, so a new measurement needs only this command.
- `demo` runs the demonstration, forty seconds. docs/images/before-after.svg is the rate of its producer
  `steady` in each second.
- `page` runs Kafka, Weir and four clients, and takes the pictures of docs/tour.md: of the admin endpoint's
  page while a quota is changed there, and of `weir top`.
- `report` runs the pipeline on generated records, and takes pictures of its report.
- `sharing` draws simulated Weirs that share a quota.

`browser` drives Chromium, also in tests.

Every drawn picture says when its figures were measured. Pictures are opaque, and drawn for a light and for a
dark background: GitHub shows them on either, and need not tell a picture which.
"""


class PictureError(Exception):
    """Data of a picture are missing or changed their form, or there is no Chromium."""
