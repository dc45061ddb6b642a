"""Request costs: tables of what requests cost a broker, and the estimate made from them (KIP-124).

`request_costs` is the format of the coefficients; one table per kind of broker is shipped
(`costs/*.toml`); `cost` is what they come down to for one API and version. `calibration`, `cost_fitting`,
`cost_findings` and `cost_file` turn measurements of a broker into such a table.
"""
