"""SASL exchanges: read while they pass, they tell the client's principal.

`authentication` fills the plans, `exchange` says when the broker has accepted which name, `identity` has
principals that the wire does not show. `protocol.sasl` reads names in tokens, so a new mechanism begins
there; `NAMED` and `_is_last` in `exchange` say that it can be read, and when it has succeeded.

- A principal counts after the broker's success only: Weir checks no credentials.
- A hidden exchange (GSSAPI) is over at the first request that a broker takes only then: its last token may
  have no answer, and what begins with an API key is no GSS token.
- That a broker demands SASL is learnt from the first accepted handshake. Requests before a login are then
  not charged: ANONYMOUS must not be everybody's budget.
- Bounds: 512 KB of a bare token, 1 MB of SaslAuthenticate, 32,767 bytes of a name, 10,000 owners of
  delegation tokens.
"""

# mypyc: skip, because a connection logs in once; compiling would only make the build longer.
