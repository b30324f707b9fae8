"""The command that compares two copies of topic-partitions."""

from base64 import b64encode
from typing import Annotated, Any

import typer

from kolumn.cli.arguments import JsonInPipes, OptionValue, with_read_options
from kolumn.cli.common import counted, is_json, print_json, rows_of, short_name, size_of
from kolumn.cli.ending import DAMAGE, OK, command, progress
from kolumn.cli.tables import Rows, print_left_out, print_some
from kolumn.core.errors import escaped

_SIDE = "A folder of a topic-partition or of many, a segment file, a glob, or a URL."


@command
@with_read_options("replicas", "max_batch_bytes", "max_ratio", "topic", "partition", "private_keys")
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=_SIDE)],
    b: Annotated[str, typer.Argument(metavar="B", help="The other side, likewise.")],
    compacted: Annotated[
        bool, typer.Option("--compacted", help="Compare the last record of each key: what compaction removed does not count.")
    ] = False,
    records: Annotated[bool, typer.Option("--records", help="List each record that differs.")] = False,
    max_records: Annotated[int, typer.Option(min=0, help="At most so many of them; the others are counted.")] = 10_000,
    check_crcs: Annotated[bool, typer.Option("--check-crcs", help="Compare the checksum of every batch: all bytes are read.")] = False,
    json: JsonInPipes = None,
    **options: OptionValue,
) -> int:
    """Compare two replicas of topic-partitions, a folder and a tier, or two backups: what only one has, what differs, what is damaged.

    Batches are compared by their headers, and only those that differ are opened. If the leader epochs of both sides part, the first
    offset of the divergence is printed, with what each side has from there on. The exit code is 0 if all records are equal, even if they
    are stored differently, and 1 if records differ or something is damaged.

    Example: `kolumn diff /mnt/old-leader/orders-3 /mnt/new-leader/orders-3`
    """
    import kolumn

    with progress("comparing", lambda: size_of([a, b])) as advance:
        found = kolumn.diff(
            a, b, compacted=compacted, records=records, max_records=max_records, check_crcs=check_crcs, on_progress=advance, **options
        )
    code = OK if found.equal else DAMAGE
    partitions, differences, left_out = (rows_of(table) for table in (found.partitions, found.differences, found.left_out))
    differing = [_with_text(row) for row in rows_of(found.records)]
    if is_json(json):
        about = {"equal": found.equal, "identical": found.identical, "recordsLeftOut": found.records_left_out}
        print_json({**about, "partitions": partitions, "differences": differences, "records": differing, "leftOut": left_out})
        return code
    unread = "" if check_crcs or not found.equal else "; checksums were not compared: --check-crcs does"
    print(f"{_verdict(partitions, differences, found.equal)}{unread}")
    for row in partitions:
        for text in _about(row):
            print(escaped(text))
    print_some("Differences", [dict(zip(_NAMES, _cells(row), strict=True)) for row in differences])
    print_some("Records that differ", differing, _RECORD_NAMES)
    if found.records_left_out:
        print(f"{counted(found.records_left_out, 'record')} more differ: --max-records lists more")
    print_left_out(left_out)
    return code


_NAMES = ("partition", "kind", "offsets", "records", "bytes", "epoch A", "epoch B", "producers", "in A", "in B", "reason")
_RECORD_NAMES = (
    *("topic", "partition", "offset", "kind", "keyA", "keyB", "valueSizeA", "valueSizeB", "timestampA", "timestampB", "leaderEpochA"),
    "leaderEpochB",
)
_MOST_PRODUCERS = 3


def _name(row: dict[str, Any]) -> str:
    return "partition" if row["topic"] is None else f"{row['topic']}-{row['partition']}"


def _about(row: dict[str, Any]) -> list[str]:
    """Lines about a partition: what its sides are, and where their leaders parted."""
    name, texts = _name(row), []
    if row["topicIdsDiffer"]:
        texts.append(f"{name}: no replicas: two topics of this name, with the ids {row['topicIdA']} in A and {row['topicIdB']} in B")
    if row["nameB"] is not None:
        texts.append(f"{name} in A is compared with {row['nameB']} in B")
    if row["divergenceOffset"] is not None:
        own = [f"{side} has {counted(row[f'beyond{side}'], 'record')} that {other} lacks" for side, other in ("AB", "BA")]
        texts.append(
            f"{name}: the leaders parted at offset {row['divergenceOffset']}, after leader epoch {row['commonEpoch']}: from there on "
            + ", and ".join(own)
        )
    return texts


def _cells(row: dict[str, Any]) -> list[Any]:
    last, producers = row["lastOffset"], row["producers"]
    offsets = f"{row['firstOffset']}.." if last is None else f"{row['firstOffset']}..{last}"
    some, more = ", ".join(map(str, producers[:_MOST_PRODUCERS])), len(producers) - _MOST_PRODUCERS
    some += f" and {more} more" if more > 0 else ""
    places = ["" if row[f"segment{side}"] is None else f"{short_name(row[f'segment{side}'])}:{row[f'position{side}']}" for side in "AB"]
    counts = row["records"], row["bytes"], row["leaderEpochA"], row["leaderEpochB"]
    return [_name(row), row["kind"], offsets, *counts, some, *places, row["reason"]]


def _with_text(row: dict[str, Any]) -> dict[str, Any]:
    """A row of records whose keys are text, with their encodings as `kolumn cat` has them."""
    for side in "AB":
        key = row[f"key{side}"]
        if key is not None:
            try:
                row[f"key{side}"], encoding = key.decode(), "utf-8"
            except UnicodeDecodeError:
                row[f"key{side}"], encoding = b64encode(key).decode(), "base64"
            row[f"key{side}Encoding"] = encoding
    return row


def _verdict(partitions: Rows, differences: Rows, is_equal: bool) -> str:
    number = counted(len(partitions), "partition")
    if not differences:
        return f"IDENTICAL: {number}"
    if is_equal:
        return f"EQUAL: every record of {number}, stored otherwise in {counted(len(differences), 'stretch')}"
    return f"DIFFERENT: {sum(not row['isEqual'] for row in partitions)} of {number}"
