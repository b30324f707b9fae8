"""``kolumn verify``: reports damage."""

from typing import TYPE_CHECKING, Any

from kolumn.cli.common import (
    DAMAGE,
    LIMIT,
    OK,
    JsonInPipes,
    Segments,
    command,
    counted,
    is_json,
    or_standard_input,
    print_json,
    print_left_out,
    print_table,
    size_of,
)
from kolumn.cli.ending import in_shell_words, progress
from kolumn.cli.read_options import OptionValue, with_read_options
from kolumn.core.errors import escaped

if TYPE_CHECKING:
    from kolumn.readers.verified import Report


@command
@with_read_options("check_crcs", "format", "max_batch_bytes", "max_ratio", "topic", "partition", "keys")
def verify(
    sources: Segments,
    json: JsonInPipes = None,
    **options: OptionValue,
) -> int:
    """Check every checksum and every record, and list the damage.

    A truncated last entry and a zero-filled tail are normal for an active segment, the last one of its directory: they are
    reported and are not damage. In a segment that is followed by another one they are damage. Remarks list absent offsets that
    may have a good reason: compaction, retention. Files and folders that are no part of the log are listed with the reason. The
    exit code is 1 if anything is damaged or is not a segment, and else 4 if an intact batch is larger than the limits allow, so that
    its records were not looked at.

    Example: `kolumn verify /mnt/dead-broker/orders-3`
    """
    import kolumn

    given = or_standard_input(sources)
    with progress("verifying", lambda: size_of(given)) as advance:
        report = kolumn.verify(given, on_progress=advance, **options)
    tables = report.segments, report.damage, report.limits, report.remarks, report.left_out
    segments, damage, large, remarks, left_out = (found.to_pylist() for found in tables)
    code = OK if report.ok else DAMAGE if damage else LIMIT
    if is_json(json):
        totals = {"ok": report.ok, "batches": report.batches, "records": report.records, "bytes": report.bytes}
        totals |= {"controlRecords": report.control_records, "inflatedByCpu": report.inflated_by_cpu}
        print_json({**totals, "segments": segments, "damage": damage, "limits": large, "remarks": remarks, "leftOut": left_out})
        return code
    from kolumn.core.errors import MEANING, Code

    not_a_segment = "{}: expected {}".format(*MEANING[Code.NOT_A_SEGMENT])
    foreign = [one for one in damage if one["reason"].startswith(not_a_segment)]
    damage = [one for one in damage if one not in foreign]
    _print_tables([s for s in segments if s["tail"]], damage, large, remarks)
    print_left_out(left_out)
    for one in foreign:
        print(f"{escaped(one['segment'])}: not a Kafka log segment: {one['reason'].rpartition('found ')[2]}")
    if len(foreign) < len(segments):
        control = f" ({report.control_records} of them control records)" if report.control_records else ""
        read = f"{counted(report.batches, 'intact batch')}, {counted(report.records, 'record')}{control}, {counted(report.bytes, 'byte')}"
        by_cpu = f", {report.inflated_by_cpu} payloads decompressed by the CPU for the GPU" if report.inflated_by_cpu else ""
        print(f"{_verdict(report, len(damage), len(foreign))}: {counted(len(segments), 'segment')}, {read}{by_cpu}")
    if report.suffices:
        enough = " and ".join(f"{name}={value}" for name, value in report.suffices.items())
        print(in_shell_words(f"If the data are trusted and memory is there, {enough} reads what is over a limit", report.suffices))
    return code


def _verdict(report: "Report", damaged: int, foreign: int) -> str:
    parts = []
    if damaged:
        parts.append(counted(damaged, "damaged stretch"))
    if foreign:
        parts.append(f"{counted(foreign, 'file')} that {'is not a segment' if foreign == 1 else 'are not segments'}")
    if report.limits.num_rows:
        parts.append(f"{counted(report.limits.num_rows, 'intact batch')} over a limit")
    if parts:
        return " and ".join(parts)
    verdict = "OK" if report.batches or not report.bytes else "NO BATCH"
    verdict = "EMPTY" if not report.bytes else verdict
    return f"{verdict}, with {counted(report.remarks.num_rows, 'remark')}" if report.remarks.num_rows else verdict


_Rows = list[dict[str, Any]]


def _print_tables(tails: _Rows, damage: _Rows, large: _Rows, remarks: _Rows) -> None:
    if tails:
        rows = [[one["segment"], one["tail"], one["tailBytes"]] for one in tails]
        print_table("Tails of active segments (no damage)", ["segment", "tail", "bytes"], rows)
        print()
    for title, found, lost in (("Damage", damage, "recordsLost"), ("Over a limit (no damage)", large, "records")):
        if found:
            names = ["segment", "position", "size", "baseOffset", "lastOffset", "recordsLost", "reason"]
            print_table(title, [*names[:5], lost, names[6]], [[row[name] for name in names] for row in found])
            print()
    if remarks:
        names = ["segment", "position", "kind", "remark", "evidence"]
        print_table("Remarks (no damage)", names, [[row[name] for name in names] for row in remarks])
        print()
