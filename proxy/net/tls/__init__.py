"""TLS on both sides: contexts of files that may change, handshakes, principals of certificates, server names.

`rules` checks the settings, `contexts` loads certificates, `handshakes` accepts new clients and runs all
handshakes, `upstream` connects to brokers. `distinguished_name`,
`principal_mapping` and `java_pattern` make a principal of a certificate. `problems` describes errors.

- Handshakes run in two threads, because each would delay every connection on the reactor's thread. At most
  1,000 are under way, for 10 s each, and none before a client's first byte.
- A server name of an unknown broker is refused after the handshake, not in it: clients take a failed
  handshake for a wrong configuration and give up, but try again after a closed connection.
- Mapping rules that Python would read otherwise than Java stop the start: a rule that means something else
  is a wrong principal.
"""

# mypyc: skip, because it works once per connection or start, and OpenSSL takes the time.
