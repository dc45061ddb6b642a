"""Check that Spark's checkpoint belongs to this source and these tables, so that no record is lost or
doubled.

Each checkpoint numbers its batches from 0, and the tables are partitioned by that number. Batches of a new
checkpoint would therefore overwrite the partitions of an old one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weir.pipeline.outcome import PipelineError

if TYPE_CHECKING:
    from weir.pipeline.files import Files
    from weir.pipeline.lake import Lake


def check(files: Files, lake: Lake, kind: str, source: str) -> None:
    """Raise PipelineError if Spark's checkpoint for a kind of records was made with another source, or does
    not fit the tables. On the first run, store the name of the `source`.
    """
    planned = _last(files, lake, kind, "offsets")
    _check_source(files, lake, kind, source, is_new=planned < 0)
    _check_tables(files, lake, kind, planned)


def _check_source(files: Files, lake: Lake, kind: str, source: str, *, is_new: bool) -> None:
    path = f"{lake.checkpoint(kind)}/weir-source"
    noted = files.text(path)
    if is_new and not noted:
        files.note(path, source)
    elif noted != source:
        raise PipelineError(
            f"{lake.root} takes {kind} from {noted or 'another source'}, not from {source}: give each source "
            "a lake of its own (--lake)"
        )


def _check_tables(files: Files, lake: Lake, kind: str, planned: int) -> None:
    ledger, checkpoint = lake.ledger(kind), lake.checkpoint(kind)
    if planned < 0:
        if files.matching(f"{ledger}/batch=*"):
            raise PipelineError(
                f"{checkpoint} is lost, but {ledger} has batches, which would be overwritten: "
                "restore it, or begin with a new lake (--lake)"
            )
        return
    if files.exists(f"{ledger}/batch={planned + 1}"):
        raise PipelineError(
            f"{checkpoint} is older than the tables: it ends at batch {planned}, and {ledger} does not: "
            "restore one that fits, or begin with a new lake (--lake)"
        )
    done = _last(files, lake, kind, "commits")
    if done >= 0 and not files.exists(f"{ledger}/batch={done}"):
        raise PipelineError(
            f"{ledger} lacks batch {done}, which {checkpoint} has: restore the tables, or begin "
            "with a new lake (--lake)"
        )


def _last(files: Files, lake: Lake, kind: str, log: str) -> int:
    """Return the number of the last batch in Spark's checkpoint: planned (`log` is `offsets`) or completed
    (`commits`). Return -1 if there is no such batch.
    """
    paths = files.matching(f"{lake.checkpoint(kind)}/{log}/*")
    return max((int(name) for path in paths if (name := path.rpartition("/")[2]).isdigit()), default=-1)
