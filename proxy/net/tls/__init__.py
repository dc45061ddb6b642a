"""TLS on both sides: contexts of files that may change, handshakes, principals of certificates, server names.

`rules` checks the settings, `contexts` loads certificates, `handshakes` accepts new clients and runs all
handshakes, `upstream` connects to brokers. `distinguished_name`,
`principal_mapping` and `java_pattern` make a principal of a certificate. `problems` describes errors.

- Handshakes run in two threads (`turns`), because each would delay every connection on the reactor's
  thread. A thread computes one step of a handshake at a time, and clients' addresses get threads in turn. No
  handshake begins before the client's first TLS record is complete (`first_flight`), which may take 2 s; the
  other bytes may take 10 s.
- An address may not have more unfinished handshakes than there are free places for connections
  (`connections_max`), so one address gets at most half of the places. Nothing else limits their number.
- A server name of an unknown broker is refused after the handshake, not in it: clients take a failed
  handshake for a wrong configuration and give up, but try again after a closed connection.
- Mapping rules that Python would read otherwise than Java stop the start: a rule that means something else
  is a wrong principal.
"""

# mypyc: skip, because it works once per connection or start, and OpenSSL takes the time.
