"""Conformance: recorded Kafka traffic, and checks whether clients and servers keep to the protocol.

This room imports `protocol` only, so that it serves as a library:
`verify(events)` returns findings. It opens no sockets; the proxy hands bytes to an object that it is given.

- `events`: the common input. A capture is a sequence of events in the order of time.
- `capture/`: the file format of captures, the recorder that writes them, redaction, and conversions.
- `verify/`: the rules, and the checks that they name.
- `report/`: findings counted, as JSON and JUnit XML, and compared with a baseline.
"""
