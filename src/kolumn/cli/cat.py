"""``kolumn cat``: the records of segments."""

import base64
from datetime import datetime
from typing import Annotated, Any

import typer

from kolumn.cli.common import (
    CheckCrcs,
    Columns,
    EndOffset,
    EndTimestamp,
    Errors,
    Format,
    IncludeControl,
    IncludeHeaders,
    IsolationLevel,
    Json,
    Partition,
    Sources,
    StartOffset,
    StartTimestamp,
    Topic,
    command,
    moment,
    print_json,
)


@command
def cat(
    sources: Sources,
    json: Json = False,
    limit: Annotated[int | None, typer.Option(min=0, help="Stop after so many records.")] = None,
    columns: Columns = None,
    include_headers: IncludeHeaders = False,
    include_control: IncludeControl = False,
    start_offset: StartOffset = None,
    end_offset: EndOffset = None,
    start_timestamp: StartTimestamp = None,
    end_timestamp: EndTimestamp = None,
    isolation_level: IsolationLevel = "read_uncommitted",
    errors: Errors = "raise",
    check_crcs: CheckCrcs = True,
    format: Format = "kafka",
    topic: Topic = None,
    partition: Partition = None,
) -> None:
    """Print records, as text or as JSON lines.

    Keys, values and header values are shown as UTF-8 where they are UTF-8, else as base64, and it says which: `value` comes
    with `valueEncoding` in JSON, and base64 text begins with `base64:`. A null stays a null.

    Example: `kolumn cat --json --start-timestamp 2026-01-31T12:00 orders-3 | jq .value`
    """
    import kolumn
    from kolumn.options import column_list

    left = limit
    reader = kolumn.scan(
        sources,
        columns=None if columns is None else column_list(columns),
        include_headers=include_headers,
        include_control=include_control,
        start_offset=start_offset,
        end_offset=end_offset,
        start_timestamp=moment(start_timestamp),
        end_timestamp=moment(end_timestamp),
        isolation_level=isolation_level,
        errors=errors,
        check_crcs=check_crcs,
        format=format,
        topic=topic,
        partition=partition,
    )
    for batch in reader:
        if left is not None:
            batch = batch.slice(0, left)
            left -= batch.num_rows
        for row in batch.to_pylist():
            if json:
                print_json(_encoded(row))
            else:
                print(_text(row))
        if left == 0:
            return


def _shown(value: bytes) -> tuple[str, str]:
    """Text of some bytes, and how it stands for them."""
    try:
        return value.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(value).decode("ascii"), "base64"


def _encoded(row: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes):
            result[name], result[f"{name}Encoding"] = _shown(value)
        elif name == "headers":
            result[name] = [_encoded(header) for header in value]
        else:
            result[name] = value
    return result


def _text(row: dict[str, Any]) -> str:
    return "  ".join(f"{name}={_cell(value)}" for name, value in row.items())


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        text, encoding = _shown(value)
        return repr(text) if encoding == "utf-8" else f"base64:{text}"
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, list):
        return "[" + ", ".join(f"{header['key']}: {_cell(header['value'])}" for header in value) + "]"
    return str(value)
