"""``kolumn audit``: what in logs needs attention."""

from typing import Annotated

import typer

from kolumn.cli.arguments import JsonInPipes, Now, OptionValue, Sources, with_read_options
from kolumn.cli.common import counted, is_json, print_json, rows_of, size_of
from kolumn.cli.ending import DAMAGE, OK, command, progress
from kolumn.cli.tables import Rows, print_left_out, print_some, terminal_width, wrapped
from kolumn.core.errors import escaped

_MOST_ROWS = 50
_PARTITION = ("topic", "partition", "records", "firstOffset", "lastOffset", "lastStableOffset")
_COUNTED = (
    *("recordsAboveStable", "bytesAboveStable", "compaction", "retention", "marker", "aborted", "damage", "lost", "unknown"),
    *("errors", "warnings"),
)
"""Columns of partitions that are printed if anything is in them."""
_OFFSETS = ("topic", "partition", "firstOffset", "lastOffset", "offsets", "reason", "evidence")
_TRANSACTION = ("topic", "partition", "firstOffset", "producerId", "producerEpoch", "transactionalId", "ageMs", "coordinatorState")


@command
@with_read_options("topic", "partition", "private_keys")
def audit(
    sources: Sources,
    now: Now = None,
    open_longer_than_ms: Annotated[
        str, typer.Option(help="Age from which on an open transaction is a finding, a duration or ms; 15 minutes is a broker's limit.")
    ] = "15m",
    check_crcs: Annotated[bool, typer.Option("--check-crcs", help="Compare checksums too, which reads every byte.")] = False,
    json: JsonInPipes = None,
    **options: OptionValue,
) -> int:
    """Find what needs attention: gaps and duplicates of producers, transactions without markers, wrong timestamps, lost offsets.

    Only batch headers are read: without `--check-crcs`, a batch with damaged contents counts as present. In log directories with
    `__transaction_state`, the coordinators' view counts too. The exit code is 1 if there is an error or a warning.

    Example: `kolumn audit --now 2026-01-31T12:00 /mnt/broker-1/data`
    """
    import kolumn

    with progress("reading headers", lambda: size_of(sources)) as advance:
        given = {"now": now, "open_longer_than_ms": open_longer_than_ms, "check_crcs": check_crcs, **options}
        done = kolumn.audit(sources, on_progress=advance, **given)
    tables = {
        "findings": done.findings, "producers": done.producers, "transactions": done.transactions, "offsets": done.offsets,
        "partitions": done.partitions, "leftOut": done.left_out,
    }  # fmt: skip
    rows: dict[str, Rows] = {name: rows_of(table) for name, table in tables.items()}
    if is_json(json):
        print_json({"ok": done.ok, **rows})
    else:
        wrong = sum(row["severity"] != "note" for row in rows["findings"])
        number = len(rows["partitions"])
        partitions = f"{counted(number, 'partition')}, {counted(sum(row['batches'] for row in rows['partitions']), 'batch')}"
        verdict = f"{counted(wrong, 'finding')} {'needs' if wrong == 1 else 'need'} attention"
        print(f"{'OK: nothing needs attention' if done.ok else verdict}: {partitions}")
        _print(rows)
    return OK if done.ok else DAMAGE


def _print(rows: dict[str, Rows]) -> None:
    findings = sorted(rows["findings"], key=lambda row: ("error", "warning", "note").index(row["severity"]))
    if findings:
        print()
    for row in findings[:_MOST_ROWS]:
        where = "?" if row["topic"] is None else f"{row['topic']}-{row['partition']}"
        at = "" if row["firstOffset"] is None else f" at offset {row['firstOffset']}"
        who = "" if row["producerId"] is None else f", producer {row['producerId']} epoch {row['producerEpoch']}"
        named = "" if row["transactionalId"] is None else f" ({row['transactionalId']})"
        text = escaped(f"{row['kind']}: {where}{at}{who}{named}: {row['detail']}")
        print("\n".join(wrapped(f"{row['severity']}: ", text, terminal_width())))
    if len(findings) > _MOST_ROWS:
        print(f"and {len(findings) - _MOST_ROWS} more findings, which --json prints")
    counted_of = [name for name in _COUNTED if any(row[name] for row in rows["partitions"])]
    absent = [row for row in rows["offsets"] if row["reason"] not in ("marker", "aborted")]
    for title, names, own in (
        ("Open transactions", _TRANSACTION, rows["transactions"]),
        ("Offsets that are absent", _OFFSETS, absent),
        ("Partitions", (*_PARTITION, *counted_of), rows["partitions"]),
    ):
        print_some(title, own[:_MOST_ROWS], names)
        if len(own) > _MOST_ROWS:
            print(f"and {len(own) - _MOST_ROWS} more")
    print_left_out(rows["leftOut"])
