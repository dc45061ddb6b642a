"""What to do with a frame: plans per dialect, API and version, and the capabilities that fill them. No I/O.

`plan` says what a plan is and what a capability sees of a session, `plans` has the tables of capabilities,
`query` is for what takes several questions to the broker.
"""
