"""The quota profile of a probe: does the target enforce client quotas as the KIPs say, in each version?

The profile sets small quotas for client-ids of its own (KIP-546), and removes them at the end. Brokers of
2.8, 3.9 and 4.2 pass. All checks run at the same time, in threads, and take about 30 s.

- `profile`: runs all jobs. `staging`: what they need at the target.
- `jobs`: a job is some checks that share connections; a stage is all that jobs share.
- `bandwidth`: Produce and Fetch (KIP-13, KIP-219). `rates`: the rate over ten seconds.
- `load`: a client's load, driven by a clock that is an argument.
- `request_time`: request_percentage, with every API that has a throttle time (KIP-124). `harmless`: requests.
- `mutations`: the quota of mutations, and error 89 (KIP-599).
- `table`: quotas set, described and removed (KIP-546).
- `judgement`: pure functions from measured answers to a sentence, and the tolerances.
- `client`, `requests`, `waiting`: a connection under a quota, and the bytes for it.
"""

from weir.conformance.probe.quotas.profile import QuotaProfile

__all__ = ["QuotaProfile"]
