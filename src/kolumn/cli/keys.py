"""Commands about keys: ``kolumn history`` says what became of one, ``kolumn latest`` what each had at a time."""

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kolumn.cli.arguments import PAYLOADS, READ_TOO, TRANSLATED, AsOf, JsonInPipes, OptionValue, Sources, with_read_options
from kolumn.cli.common import is_json, note, rows_of, say, short_name, size_of
from kolumn.cli.ending import command, progress
from kolumn.cli.tables import print_table
from kolumn.core.errors import escaped

if TYPE_CHECKING:
    import pyarrow as pa

_LIMITS = ("start_offset", "end_offset", "start_timestamp", "end_timestamp")
_PAYLOADS = tuple(name for name in PAYLOADS if not name.endswith("_as"))
_SHOWN = (
    *("partition", "offset", "timestamp", "producerId", "producerEpoch", "transaction", "tombstone", "deletes", "valueSize", "valueHash"),
    "segment",
)  # fmt: skip
_HASH = 12  # characters of a hash that tell values apart for people
_NOT_THERE = "The name and the address of the client are not in a log: a producer id, its transactional id and headers are all there is."


@command
@with_read_options("include_headers", *_LIMITS, *TRANSLATED, *READ_TOO, *_PAYLOADS, errors="skip")
def history(
    sources: Sources,
    json: JsonInPipes = None,
    key: Annotated[
        list[str] | None, typer.Option(help="A key: text, or bytes after `hex:` or `base64:`; may be repeated to match any of them.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header; may be repeated: a record has to match all of them.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=VALUE", help="A field of typed values or keys, `value.name=ada`, or a header; may be repeated."),
    ] = None,
    values: Annotated[bool, typer.Option("--values", help="Show keys and values too.")] = False,
    **options: OptionValue,
) -> int:
    """Show every record of a key, what became of its transaction, and who deleted the key.

    Records of aborted and open transactions are shown too, and with `--include-deleted-segments` those in files that a broker was about
    to delete. With `__transaction_state` among the sources, producers have their transactional ids. Damage is left out, and is counted
    on standard error.

    Example: `kolumn history --key order-79 /var/lib/kafka/data/orders-*`
    """
    import kolumn

    skipped, as_json = kolumn.Skipped(), is_json(json)
    # JSON has all columns, text names the headers of what deleted the key.
    options["include_headers"] = options["include_headers"] or not as_json
    with progress("searching", lambda: size_of(sources)) as advance:
        table = kolumn.history(
            sources, keys=key, header=header, where=where, include_values=values, on_damage=skipped, on_progress=advance, **options
        )  # fmt: skip
    if as_json:
        _print_lines(table, as_json)
        return say(skipped)
    if not table.num_rows:
        note("no such record")
        return say(skipped)
    rows = rows_of(_as_text(table))
    names = [*(("topic",) if len({row["topic"] for row in rows}) > 1 else ()), *_SHOWN, *(("key", "value") if values else ())]
    print_table("", names, [[_cell(name, row[name]) for name in names] for row in rows])
    if deleted := [escaped(_who(row)) for row in rows if row["deletes"]]:
        print("", *deleted, _NOT_THERE, sep="\n")
    return say(skipped)


def _as_text(table: "pa.Table") -> "pa.Table":
    """A table with typed keys and values as `kolumn cat` shows them."""
    import pyarrow as pa

    from kolumn.cli.lines import is_typed, value_text

    for name in ("key", "value"):
        index = table.schema.get_field_index(name)
        if index >= 0 and is_typed(table.schema.field(index).type):
            texts = [text for chunk in table.column(index).chunks for text in value_text(chunk)]
            table = table.set_column(index, name, pa.array(texts, pa.string()))
    return table


def _cell(name: str, value: object) -> object:
    if name == "valueHash" and isinstance(value, str):
        return value[:_HASH]
    if name == "segment":
        return short_name(str(value))
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value


def _who(row: dict[str, Any]) -> str:
    by = "a producer without an id" if row["producerId"] < 0 else f"producer {row['producerId']}, epoch {row['producerEpoch']}"
    by += f", transactional id {row['transactionalId']}" if row["transactionalId"] is not None else ""
    headers = ", ".join(f"{header['key']}={_cell('', header['value'])}" for header in row["headers"] or ())
    where = f"{row['topic']}-{row['partition']}" if row["topic"] is not None else short_name(row["segment"])
    return f"Deleted at offset {row['offset']} of {where} by {by}; {f'headers: {headers}' if headers else 'no headers'}"


@command
@with_read_options(
    *("columns", "include_headers", "open_transactions", *TRANSLATED),
    *(*(name for name in READ_TOO if name != "include_snapshots"), *PAYLOADS),
    errors="skip",
)
def latest(
    sources: Sources,
    json: JsonInPipes = None,
    as_of: AsOf = None,
    as_of_offset: Annotated[int | None, typer.Option(help="The last offset of each partition that counts.")] = None,
    **options: OptionValue,
) -> int:
    """Show the state of a compacted topic, now or at a time: the latest record of each key.

    A key whose latest record is a tombstone is not shown. Records of aborted and open transactions do not count. What is left out or
    unknown is counted on standard error: if a key has only later records, compaction may have removed an earlier one.

    Example: `kolumn latest --as-of 2026-01-31T12:00 /var/lib/kafka/data/prices-*`
    """
    import kolumn

    skipped = kolumn.Skipped()
    with progress("reading twice", lambda: 2 * size_of(sources)) as advance:
        table = kolumn.latest(sources, as_of=as_of, as_of_offset=as_of_offset, on_damage=skipped, on_progress=advance, **options)
    _print_lines(table, is_json(json))
    return say(skipped)


def _print_lines(table: "pa.Table", as_json: bool) -> None:
    """Print rows as `kolumn cat` does."""
    from kolumn.cli.lines import blocks, data_of, json_lines, text_lines

    lines_of = json_lines if as_json else text_lines
    for batch in table.to_batches():
        for block in blocks(batch):
            sys.stdout.buffer.write(data_of(lines_of(block), block.num_rows))
