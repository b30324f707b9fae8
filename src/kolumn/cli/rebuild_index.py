"""``kolumn rebuild-index``: index files from the log."""

from typing import Annotated

import typer

from kolumn.cli.common import Json, command, counted, print_json
from kolumn.cli.left_out import say_of
from kolumn.cli.progress import progress
from kolumn.cli.read_options import OptionValue, with_read_options


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
