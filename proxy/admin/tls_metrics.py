"""Metrics of TLS: refused files, expiry of certificates."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from proxy.admin import family
from proxy.net.tls.files import ContextOfFiles


def families(all_files: list[ContextOfFiles]) -> Iterator[Metric]:
    """Yield the metrics; without TLS they have no samples."""
    labels = ("files",)
    yield family.gauges(
        "weir_tls_files_last_reload_successful",
        "0 while changed TLS files are refused, and older ones in force.",
        labels,
        (((files.name,), files.last_was_good) for files in all_files),
    )
    yield family.counters(
        "weir_tls_files_refused",
        "Number of times that changed TLS files could not be used.",
        labels,
        (((files.name,), files.refused) for files in all_files),
    )
    yield family.gauges(
        "weir_tls_certificate_expiry_timestamp_seconds",
        "Unix time at which the certificate in force expires.",
        labels,
        (((files.name,), files.expires_s) for files in all_files if files.expires_s),
    )
