"""``kolumn space``: what the bytes are used for, in each format."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kolumn.cli.common import (
    OK,
    CodecName,
    FormatName,
    JsonInPipes,
    command,
    counts,
    is_json,
    print_json,
    print_table,
    say,
    short_name,
    size_of,
)
from kolumn.cli.completion import among
from kolumn.cli.ending import progress
from kolumn.cli.read_options import READING, OptionValue, with_read_options
from kolumn.cli.tables import note
from kolumn.core.keywords import Codec

if TYPE_CHECKING:
    from kolumn.tools.sizes import Space


@command
@with_read_options(*(name for name in READING if name != "format"), "keys", errors="skip")
def space(
    sources: Annotated[
        list[str] | None, typer.Argument(metavar="[SOURCE...]", help="Sources as elsewhere; without any, the table of the KIP-98 draft.")
    ] = None,
    json: JsonInPipes = None,
    picture: Annotated[str | None, typer.Option(help="Draw it too: a file ending in .svg, .png or .pdf (kolumn[report]).")] = None,
    codec: Annotated[
        CodecName | None, typer.Option(autocompletion=among(Codec), help="Codec of all formats; by default each batch keeps its own.")
    ] = None,
    source_format: Annotated[FormatName, typer.Option(help="'kafka', or the draft that the source has.")] = "kafka",
    **options: OptionValue,
) -> int:
    """Report the size of segments as they are and in each format, and what the bytes are used for. No segment is written.

    Without a source: the overhead of messages of 1 KiB with keys of 100 bytes, in format 1 and in the sets of the KIP-98
    draft, from encoded bytes.

    Example: `kolumn space --picture orders.svg /var/lib/kafka/data/orders-3`
    """
    if not sources:
        _draft_table(is_json(json))
        return OK
    import kolumn

    skipped = kolumn.Skipped()
    with progress("accounting", lambda: size_of(sources)) as advance:
        found = kolumn.space(sources, codec=codec, source_format=source_format, on_damage=skipped, on_progress=advance, **options)
    if picture is not None:
        from kolumn.tools.statistics import draw

        draw(found, picture, ", ".join(map(short_name, sources)))
    if is_json(json):
        for one in found:
            print_json(_row(one) | {"estimated": one.estimated, "lost": dict(one.lost)} | counts(skipped))
        return say(skipped)
    if any(one.estimated for one in found):
        note("sizes with a codec are estimated from a part of the batches: see 'estimated' with --json")
    rows = [_row(one) for one in found]
    print_table("", list(rows[0]), [list(row.values()) for row in rows])
    return say(skipped)


def _row(one: "Space") -> dict[str, Any]:
    from kolumn.tools.anatomy import PARTS

    share = {name: one.parts[name] for name in PARTS}
    return {"format": one.format, "magic": one.magic, "codec": one.codec or None, "records": one.records, "bytes": one.bytes, **share}


def _draft_table(json: bool) -> None:
    from kolumn.tools.statistics import draft_table

    rows = draft_table()
    if json:
        for row in rows:
            print_json(row)
        return
    print_table("Bytes beyond the messages' own", list(rows[0]), [list(row.values()) for row in rows])
