"""A report: every segment is read to its end, and what is next to it is compared with it."""

from dataclasses import replace

from kolumn.damage.remarks import REMARKED, Kind, Remark, null_values, remark_table
from kolumn.decode.pipeline import scan_ranges
from kolumn.decode.result import Tally
from kolumn.entries.snapshots import snapshots_of
from kolumn.index_files.check import side_file_remarks
from kolumn.options import Options
from kolumn.replicas.copies import Overlap, overlaps
from kolumn.source.segments import Range, Segment
from kolumn.source.storage import base_name
from kolumn.verification.report import Report, make_report


def verified(segments: list[Segment], asked: Options) -> Report:
    """The report of live segments, each read to its end, with the limits and the resources that are asked for."""
    looked_at = REMARKED if asked.format == "kip87" else ("offset",)
    everything = Options(
        columns=(*looked_at, "isControl"), include_control=True, errors="skip", binary="view", format=asked.format, remarks=True
    )
    chosen = replace(
        everything,
        check_crcs=asked.check_crcs,
        chunk_bytes=asked.chunk_bytes,
        threads=asked.threads,
        backend=asked.backend,
        max_batch_bytes=asked.max_batch_bytes,
        max_ratio=asked.max_ratio,
        trusted=asked.trusted,
        on_progress=asked.on_progress,
    )
    found: list[tuple[Segment, Tally]] = []
    control = 0
    remarked = [remark_table(map(_copies, overlaps(segments))), remark_table(side_file_remarks(segments))]
    if not asked.include_snapshots:
        remarked.append(remark_table(_left_out(folder, names) for folder, names in snapshots_of(segments).items()))
    for batch in scan_ranges(map(Range.whole, segments), chosen, tally=lambda one, tally: found.append((one.segment, tally))):
        control += batch["isControl"].true_count
        if looked_at is REMARKED and (made := null_values(batch)).num_rows:
            remarked.append(made)
    return make_report(found, remarked, control)


def _left_out(folder: str, names: list[str]) -> Remark:
    text = f"{len(names)} snapshot{'s' if len(names) > 1 else ''} of the metadata beside the log, which a read leaves out"
    return Remark(folder, 0, Kind.SNAPSHOTS, None, None, text, f"include_snapshots reads them; the newest is {base_name(names[-1])}")


def _copies(overlap: Overlap) -> Remark:
    one, other = overlap.folders
    text = f"{overlap.topic}-{overlap.partition}: {one} and {other} both have offsets from {overlap.first} to {overlap.last}"
    evidence = "a read of both needs replicas='merge' or replicas='first'; here each is verified by itself"
    return Remark(one, 0, Kind.COPIES, overlap.first, overlap.last, text, evidence)
