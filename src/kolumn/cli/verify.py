"""``kolumn verify``: is anything damaged."""

from kolumn.cli.common import DAMAGE, OK, CheckCrcs, Format, Json, Partition, Sources, Topic, command, print_json, print_table


@command
def verify(
    sources: Sources,
    json: Json = False,
    check_crcs: CheckCrcs = True,
    format: Format = "kafka",
    topic: Topic = None,
    partition: Partition = None,
) -> int:
    """Check every checksum and every record, and list what is damaged.

    A truncated last entry and a zero-filled tail are normal for a segment that was being written: they are reported and are
    no damage. Exit code 1 if anything is damaged.

    Example: `kolumn verify /mnt/dead-broker/orders-3`
    """
    import kolumn

    report = kolumn.verify(sources, check_crcs=check_crcs, format=format, topic=topic, partition=partition)
    segments, damage, remarks = (found.to_pylist() for found in (report.segments, report.damage, report.remarks))
    if json:
        totals = {"ok": report.ok, "batches": report.batches, "records": report.records, "bytes": report.bytes}
        totals["inflatedByCpu"] = report.inflated_by_cpu
        print_json({**totals, "segments": segments, "damage": damage, "remarks": remarks})
        return OK if report.ok else DAMAGE
    tails = [[s["segment"], s["tail"], s["tailBytes"]] for s in segments if s["tail"]]
    if tails:
        print_table("Tails of active segments (no damage)", ["segment", "tail", "bytes"], tails)
        print()
    if damage:
        names = ["segment", "position", "size", "baseOffset", "lastOffset", "recordsLost", "reason"]
        print_table("Damage", names, [[row[name] for name in names] for row in damage])
        print()
    if remarks:
        print_table("Remarks (no damage)", list(remarks[0]), [list(row.values()) for row in remarks])
        print()
    verdict = "OK" if report.ok else f"{len(damage)} damaged stretch{'es' if len(damage) > 1 else ''}"
    by_cpu = f", {report.inflated_by_cpu} inflated by the CPU for the GPU" if report.inflated_by_cpu else ""
    print(f"{verdict}: {len(segments)} segments, {report.batches} intact batches{by_cpu}, {report.records} records, {report.bytes} bytes")
    return OK if report.ok else DAMAGE
