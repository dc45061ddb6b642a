"""One budget for several Weirs: each charges its own clients, and what the other Weirs report.

Each Weir keeps the whole limit. Splitting a limit would announce waits of seconds for a mere shift of demand,
and the demand of a throttled client is invisible. Reports are late by a fraction of a second, and Kafka's
window is ten seconds long, so the error is small (docs/background/sharing.md).

- `report`: what one Weir tells the others, as values and as bytes.
- `own`: which usage is unreported, and when the next report is due.
- `advances`: usage of others that is charged before they report it.
- `repayment`: usage beyond the limit that is charged again, because the window has forgotten it.
- `others`: what reports of other Weirs add to their former ones.
- `blindness`: limits while reports do not get through.
- `shared`: the limiters of this Weir that take part.

Times are ms on one clock of the caller. The clocks of several Weirs are never compared.
"""
