"""``kolumn inspect``: the batches of segments."""

from typing import Annotated, Any

import typer

from kolumn.cli.common import CheckCrcs, Errors, Format, Json, Partition, Sources, Topic, command, print_json, print_table


@command
def inspect(
    sources: Sources,
    json: Json = False,
    limit: Annotated[int | None, typer.Option(min=0, help="Stop after so many batches.")] = None,
    check_crcs: CheckCrcs = True,
    errors: Errors = "skip",
    format: Format = "kafka",
    topic: Topic = None,
    partition: Partition = None,
) -> None:
    """List the batches (formats 0 and 1: the outermost messages) without decoding their records.

    With `--no-check-crcs` only headers are read, which is quick on segments of any size. Flags: T transactional, C control,
    H delete horizon, L LogAppendTime.

    Example: `kolumn inspect --json orders-3 | jq 'select(.producerId == 4001)'`
    """
    import kolumn

    table = kolumn.batches(sources, check_crcs=check_crcs, errors=errors, format=format, topic=topic, partition=partition)
    if limit is not None:
        table = table.slice(0, limit)
    rows = table.to_pylist()
    if json:
        for row in rows:
            print_json(row)
        return
    names = ["segment", "position", "size", "offsets", "count", "magic", "codec", "crc", "producer", "sequence", "epoch", "flags"]
    print_table("", names, [_line(row) for row in rows])


def _line(row: dict[str, Any]) -> list[Any]:
    first = "?" if row["baseOffset"] is None else row["baseOffset"]
    marks = ("isTransactional", "T"), ("isControl", "C")
    flags = "".join(mark for name, mark in marks if row[name])
    flags += ("H" if row["deleteHorizonMs"] is not None else "") + ("L" if row["timestampType"] == 1 else "")
    crc = {True: "ok", False: "WRONG", None: ""}[row["crcValid"]]
    producer = "" if row["producerId"] == -1 else f"{row['producerId']}/{row['producerEpoch']}"
    sequence = "" if row["baseSequence"] == -1 else row["baseSequence"]
    segment = "/".join(row["segment"].split("/")[-2:])
    fixed = [segment, row["position"], row["size"], f"{first}..{row['lastOffset']}", row["count"], row["magic"], row["codec"]]
    return [*fixed, crc, producer, sequence, "" if row["leaderEpoch"] == -1 else row["leaderEpoch"], flags]
