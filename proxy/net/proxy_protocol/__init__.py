"""The PROXY protocol, version 2: load balancers tell Weir the addresses of clients.

`rules` has the load balancers that may, `header` parses the bytes that a load balancer sends before the
client's, `receive` reads these bytes from a socket. HAProxy's proxy-protocol.txt is the specification.

- Only peers in `proxy_protocol_from` are believed, and each of their connections must begin with a header:
  clients could otherwise choose an address, and avoid the quotas of their own.
- Weir reads the header before TLS, and before it counts the connection for an address. It reads no byte
  behind the header.
- A connection of the load balancer itself (LOCAL, such as a health check), or of a client of another family
  than IP, keeps the load balancer's address.
"""
