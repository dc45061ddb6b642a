"""SASL exchanges: Weir reads them while it forwards them, to learn the client's principal.

`authentication` fills the plans, `exchange` tells when the broker has accepted a name, `identity` has
principals that the wire does not show. `protocol.sasl` reads names in tokens. To add a mechanism, begin
there; then add it to `NAMED` in `exchange`, and let `_is_last` there tell when an exchange has succeeded.

- The principal changes only after the broker's success, because Weir checks no credentials.
- If the tokens do not show the client's name (GSSAPI: a hidden exchange), the exchange ends with the first
  request that a broker accepts only after success: the last token may have no response, and bytes that begin
  with an API key are no GSSAPI token.
- Weir learns from the first accepted handshake that a broker requires SASL. Requests before a login are then
  not charged: all clients have the principal ANONYMOUS then, and would share its quota.
- Bounds: 512 KB for a bare token, 1 MB for SaslAuthenticate, 32,767 bytes for a name, 10,000 owners of
  delegation tokens.
"""

# mypyc: skip, because a connection logs in once; compiling would only make the build longer.
