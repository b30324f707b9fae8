"""Rows of a topic that tells something about others: schemas, groups, transactions, copies in a tier."""

from collections.abc import Iterator

import pyarrow as pa

from kolumn.decode.pipeline import OnDamage, scan_ranges
from kolumn.keywords import Errors, Progress
from kolumn.options import Options
from kolumn.replicas.ranges import plan_log
from kolumn.source.segments import Segment


def topic_rows(
    segments: list[Segment],
    columns: tuple[str, ...],
    errors: Errors = "skip",
    on_damage: OnDamage | None = None,
    on_progress: Progress | None = None,
) -> Iterator[pa.RecordBatch]:
    """Decode a topic in the order of offsets, each once if the segments are of several copies; on the CPU, since it is small."""
    options = Options.of(columns=columns, errors=errors, replicas="merge", backend="cpu", threads=1, on_progress=on_progress)
    return scan_ranges(plan_log(segments, options), options, on_damage)
