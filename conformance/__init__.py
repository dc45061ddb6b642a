"""Conformance: recorded Kafka traffic, and checks whether clients and servers keep to the protocol.

This room imports `protocol` only, so that it serves as a library:
`verify(events)` returns findings. The proxy hands bytes to an object that it is given. Only `probe/` opens
sockets.

- `events`: the common input. A capture is a sequence of events in the order of time.
- `frames`: cuts the bytes of a side into frames.
- `capture/`: the file format of captures, the recorder that writes them, redaction, and conversions.
- `verify/`: the rules, and the checks that they name.
- `probe/`: requests to a live server, and the outcome of each.
- `report/`: findings counted, as JSON and JUnit XML, and compared with a baseline.
"""
