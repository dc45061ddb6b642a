"""What /metrics says about the recording of usage."""

from __future__ import annotations

from weir.proxy.admin.metrics import usage_records as families
from weir.proxy.control.usage.tally import Kind, Loss, Tally


def samples(tally: Tally) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families(tally)
        for sample in family.samples
    }


def test_usage_metrics_equal_the_tally() -> None:
    tally = Tally()
    tally.note_written(Kind.TRACE, 3, 600, 1_763_775_570.5)
    tally.note_dropped(Loss.QUEUE_FULL, 4)
    tally.queued, tally.unacknowledged = 5, 6
    tally.finished_files, tally.deleted_files = 7, 8
    tally.failure = "disk full"
    found = samples(tally)
    expected: dict[tuple[str, ...], float] = {
        ("weir_usage_records_total", "usage"): 0,
        ("weir_usage_records_total", "trace"): 3,
        **{("weir_usage_records_dropped_total", loss.value): 0 for loss in Loss},
        ("weir_usage_records_dropped_total", "queue_full"): 4,
        ("weir_usage_written_bytes_total",): 600,
        ("weir_usage_files_finished_total",): 7,
        ("weir_usage_files_deleted_total",): 8,
        ("weir_usage_queue_records",): 11,
        ("weir_usage_available",): 0,
        ("weir_usage_last_write_timestamp_seconds",): 1_763_775_570.5,
    }
    assert found == expected
