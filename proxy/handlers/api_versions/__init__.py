"""ApiVersions: the versions that clients may negotiate (KIP-35, KIP-511).

`api_versions` offers the versions that both the broker and Weir can read; `proxy.handlers.plans` then has the
plans for these versions. If a client never sends ApiVersions, Weir sends one before a request that depends on
the broker's versions. A client's ApiVersions request is forwarded, and Weir sends none of its own before it,
because before SASL a broker allows only one. `node_check` answers clients at a wrong port (KIP-1242).
"""
