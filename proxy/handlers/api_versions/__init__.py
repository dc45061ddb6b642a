"""ApiVersions: the versions that clients may negotiate (KIP-35, KIP-511).

`api_versions` offers what broker and Weir both read; `proxy.handlers.plans` then has the plans of these
versions. Weir asks for them itself, before a request that depends on them, if the client never does. It
forwards ApiVersions unchanged, because before SASL a broker allows the request once.
"""
