"""Verification of recorded traffic: `verify(events)` yields findings.

- `rules`: the registry; every finding names one of its rules. `finding`: the result.
- `connection`: requests and their responses, rules applied to both.
- `messages`, `differences`: a frame decoded, encoded again, and compared field by field.
- `values`: error codes, throttle times. `error_codes`: the codes that each API may answer.
- `client_behaviour`: versions offered, throttles kept, SASL's order.
- `traffic`: counts of connections, bytes and frames.
- `record_batches`, `message_sets`, `records`, `unpacking`, `producers`: records.

A frame is decoded strictly, by the codec that Weir uses itself. If its bytes come out again, they are what
Kafka writes. Only otherwise does a second, slower scanner read the frame and name the field: the codec
cannot, because it stops at the first malformed field.
"""

from __future__ import annotations

from weir.conformance.verify.finding import Finding
from weir.conformance.verify.rules import RULES, R, Rule, Severity
from weir.conformance.verify.traffic import Exchange, Traffic
from weir.conformance.verify.verifier import Verifier, verify

__all__ = ["RULES", "Exchange", "Finding", "R", "Rule", "Severity", "Traffic", "Verifier", "verify"]
