"""Request costs: tables of the request time that requests take at a broker, and the estimate from them
(KIP-124).

`request_costs` has the format of the coefficients; Weir ships one table per kind of broker (`costs/*.toml`).
`cost` computes the estimate for one API and version. `calibration`, `cost_fitting`, `cost_findings` and
`cost_file` turn measurements of a broker into such a table.
"""
