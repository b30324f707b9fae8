"""``kolumn verify``: reports damage."""

from typing import TYPE_CHECKING, Any

from kolumn.cli.common import (
    DAMAGE,
    OK,
    CheckCrcs,
    Format,
    JsonInPipes,
    KeyFile,
    MaxBatchBytes,
    MaxRatio,
    Partition,
    Segments,
    Topic,
    command,
    counted,
    is_json,
    key_files,
    limits,
    or_standard_input,
    print_json,
    print_table,
    size_of,
)
from kolumn.cli.left_out import print_left_out
from kolumn.cli.progress import progress
from kolumn.errors import escaped

if TYPE_CHECKING:
    from kolumn.verification.report import Report


@command
def verify(
    sources: Segments,
    json: JsonInPipes = None,
    check_crcs: CheckCrcs = True,
    format: Format = "kafka",
    max_batch_bytes: MaxBatchBytes = None,
    max_ratio: MaxRatio = None,
    topic: Topic = None,
    partition: Partition = None,
    key_file: KeyFile = None,
) -> int:
    """Check every checksum and every record, and list the damage.

    A truncated last entry and a zero-filled tail are normal for an active segment, the last one of its directory: they are
    reported and are not damage. In a segment that is followed by another one they are damage. Remarks list absent offsets that
    may have a good reason: compaction, retention. Files and folders that are no part of the log are listed with the reason. The
    exit code is 1 if anything is damaged or is not a segment.

    Example: `kolumn verify /mnt/dead-broker/orders-3`
    """
    import kolumn

    given = or_standard_input(sources)
    with progress("verifying", lambda: size_of(given)) as advance:
        report = kolumn.verify(
            given, check_crcs=check_crcs, format=format, topic=topic, partition=partition, on_progress=advance,
            keys=key_files(key_file),
            **limits(max_batch_bytes, max_ratio),
        )  # fmt: skip
    tables = report.segments, report.damage, report.remarks, report.left_out
    segments, damage, remarks, left_out = (found.to_pylist() for found in tables)
    if is_json(json):
        totals = {"ok": report.ok, "batches": report.batches, "records": report.records, "bytes": report.bytes}
        totals |= {"controlRecords": report.control_records, "inflatedByCpu": report.inflated_by_cpu}
        print_json({**totals, "segments": segments, "damage": damage, "remarks": remarks, "leftOut": left_out})
        return OK if report.ok else DAMAGE
    from kolumn.errors import MEANING, Code

    not_a_segment = "{}: expected {}".format(*MEANING[Code.NOT_A_SEGMENT])
    foreign = [one for one in damage if one["reason"].startswith(not_a_segment)]
    damage = [one for one in damage if one not in foreign]
    _print_tables([s for s in segments if s["tail"]], damage, remarks)
    print_left_out(left_out)
    for one in foreign:
        print(f"{escaped(one['segment'])}: not a Kafka log segment: {one['reason'].rpartition('found ')[2]}")
    if len(foreign) < len(segments):
        control = f" ({report.control_records} of them control records)" if report.control_records else ""
        read = f"{counted(report.batches, 'intact batch')}, {counted(report.records, 'record')}{control}, {counted(report.bytes, 'byte')}"
        by_cpu = f", {report.inflated_by_cpu} payloads decompressed by the CPU for the GPU" if report.inflated_by_cpu else ""
        print(f"{_verdict(report, len(damage), len(foreign))}: {counted(len(segments), 'segment')}, {read}{by_cpu}")
    return OK if report.ok else DAMAGE


def _verdict(report: "Report", damaged: int, foreign: int) -> str:
    parts = []
    if damaged:
        parts.append(counted(damaged, "damaged stretch"))
    if foreign:
        parts.append(f"{counted(foreign, 'file')} that {'is not a segment' if foreign == 1 else 'are not segments'}")
    if parts:
        return " and ".join(parts)
    verdict = "OK" if report.batches or not report.bytes else "NO BATCH"
    verdict = "EMPTY" if not report.bytes else verdict
    return f"{verdict}, with {counted(report.remarks.num_rows, 'remark')}" if report.remarks.num_rows else verdict


def _print_tables(tails: list[dict[str, Any]], damage: list[dict[str, Any]], remarks: list[dict[str, Any]]) -> None:
    if tails:
        rows = [[one["segment"], one["tail"], one["tailBytes"]] for one in tails]
        print_table("Tails of active segments (no damage)", ["segment", "tail", "bytes"], rows)
        print()
    if damage:
        names = ["segment", "position", "size", "baseOffset", "lastOffset", "recordsLost", "reason"]
        print_table("Damage", names, [[row[name] for name in names] for row in damage])
        print()
    if remarks:
        names = ["segment", "position", "kind", "remark", "evidence"]
        print_table("Remarks (no damage)", names, [[row[name] for name in names] for row in remarks])
        print()
