"""Report the pipeline's tables as one HTML page that needs no network.

Clients choose their names, so `html` escapes all text of the page and of the charts' labels by construction.
"""
