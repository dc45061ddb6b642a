"""One client's session, sans-IO: bytes and the time in; what to send, and until when to be silent, out.

`Connection` is what both halves share; `Requests` judges what comes from the client, `Responses` what comes from
the broker.
"""
