"""``kolumn recover``: what is intact in damaged copies, as folders that a broker starts on.

``kolumn rebuild-index``: index files from the log.
"""

from typing import Annotated

import typer

from kolumn.cli.common import (
    DAMAGE,
    LIMIT,
    OK,
    Json,
    Output,
    Paths,
    command,
    counted,
    print_json,
    print_left_out,
    print_table,
    say_of,
    size_of,
    sources_and_target,
)
from kolumn.cli.ending import progress
from kolumn.cli.read_options import OptionValue, with_read_options
from kolumn.core.errors import escaped


@command
@with_read_options("topic", "partition", "keys")
def recover(
    paths: Paths,
    output: Output = None,
    index_interval_bytes: Annotated[int, typer.Option(min=1, help="Bytes of the log between two entries of an index.")] = 4096,
    json: Json = False,
    **options: OptionValue,
) -> int:
    """Write every intact batch of damaged copies into folders that a broker starts on, with indexes and leader epochs.

    Batches are copied byte for byte, each offset once; damage of one replica is filled from the others. The tables say which offsets
    came from where, what is in no copy, and how sure the number of lost records is. The exit code is 1 if anything is lost, and else
    4 if a batch is over a limit: it is copied like the others, but its records were not counted.

    Example: `kolumn recover /mnt/broker-1/orders-3 /mnt/broker-2/orders-3 recovered/`
    """
    sources, target = sources_and_target(paths, output)
    import kolumn

    with progress("recovering", lambda: size_of(sources)) as advance:
        done = kolumn.recover(sources, target, index_interval_bytes=index_interval_bytes, on_progress=advance, **options)
    tables = {"partitions": done.partitions, "kept": done.kept, "lost": done.lost, "remarks": done.remarks, "leftOut": done.left_out}
    rows = {name: found.to_pylist() for name, found in tables.items()}
    large = [row for row in rows["lost"] if row["kind"] == "limit"]
    code = DAMAGE if not done.ok else LIMIT if large else OK
    if json:
        print_json({"ok": done.ok, **rows, "divergences": list(done.divergences)})
        return code
    titles = {
        "partitions": "Written", "kept": "Where it comes from", "lost": "Lost",
        "limit": "Over a limit: kept, records not counted (no damage)", "remarks": "Remarks (no damage)",
    }  # fmt: skip
    left_out = rows.pop("leftOut")
    shown = {**rows, "lost": [row for row in rows["lost"] if row["kind"] != "limit"], "limit": large}
    for name, own in ((name, shown[name]) for name in titles):
        if own:
            print_table(titles[name], list(own[0]), [list(row.values()) for row in own])
            print()
    print_left_out(left_out)
    for text in done.divergences:
        print(f"Different records: {escaped(text)}")
    open_ones = sum(row["openTransactions"] for row in rows["partitions"])
    if open_ones:
        print(f"{counted(open_ones, 'transaction')} without a marker: `kolumn transactions` lists what a broker would wait for")
    numbers = [row["records"] for row in rows["partitions"]]
    records = "an unknown number of records" if None in numbers else counted(sum(numbers), "record")
    written = f"{records} in {counted(len(numbers), 'partition')}"
    if large:
        written += f"; {counted(len(large), 'batch')} over a limit: kept, and {'its' if len(large) == 1 else 'their'} records not counted"
    lost = sum(row["kind"] not in ("tail", "limit") for row in rows["lost"])
    print(f"{'OK' if done.ok else counted(lost, 'stretch') + ' lost'}: {written}")
    return code


@command
@with_read_options("errors")
def rebuild_index(
    folder: Annotated[str, typer.Argument(metavar="DIR", help="A topic-partition directory, or a log directory of many.")],
    index_interval_bytes: Annotated[int, typer.Option(min=1, help="Bytes of the log between two entries of an index.")] = 4096,
    json: Json = False,
    **options: OptionValue,
) -> int:
    """Write .index, .timeindex and .txnindex of each segment anew, from the log, as a broker does when it recovers.

    The log itself is only read. All files are replaced, or none. No broker may be running on the directory. With --errors skip damaged
    batches get no entries, and are counted on standard error.

    Example: `kolumn rebuild-index /mnt/dead-broker/orders-3`
    """
    import kolumn

    with progress("indexing", None) as advance:
        done = kolumn.rebuild_index(folder, index_interval_bytes=index_interval_bytes, on_progress=advance, **options)
    if json:
        counts = {"offsetEntries": done.offset_entries, "timeEntries": done.time_entries, "transactionEntries": done.transaction_entries}
        print_json({"files": list(done.files), "removed": list(done.removed), **counts})
    else:
        removed = f", {counted(len(done.removed), 'file')} without entries removed" if done.removed else ""
        entries = done.offset_entries + done.time_entries + done.transaction_entries
        print(f"{counted(len(done.files), 'index file')} with {entries} entries{removed}")
    return say_of(done)
