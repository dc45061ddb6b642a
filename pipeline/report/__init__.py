"""Report: the pipeline's tables as one HTML page without network access."""
