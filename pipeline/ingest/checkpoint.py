"""Does Spark's checkpoint belong to this source and these tables? If not, records would be lost or doubled.

Spark's batches are numbered from 0 in each checkpoint, and the tables are partitioned by that number. A lost
checkpoint would begin at 0 again, and overwrite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.outcome import PipelineError

if TYPE_CHECKING:
    from pipeline.files import Files
    from pipeline.lake import Lake


def check(files: Files, lake: Lake, kind: str, source: str) -> None:
    """See that batches may go on, and note the `source` at the first time. Raises PipelineError."""
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
                f"{checkpoint} is lost, but there are batches in {ledger}, which would be overwritten: "
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
            f"{ledger} lacks batch {done}, which {checkpoint} says is done: restore the tables, or begin "
            "with a new lake (--lake)"
        )


def _last(files: Files, lake: Lake, kind: str, log: str) -> int:
    """The last batch that Spark has planned (`offsets`) or done (`commits`), -1 for none."""
    paths = files.matching(f"{lake.checkpoint(kind)}/{log}/*")
    return max((int(name) for path in paths if (name := path.rpartition("/")[2]).isdigit()), default=-1)
