"""The command that takes records out of a log: `kolumn erase`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kolumn.cli.arguments import PAYLOADS, READING, IndexInterval, Json, OptionValue, Output, Paths, sources_and_target, with_read_options
from kolumn.cli.common import counted, note, print_json, rows_of, say_of, size_of
from kolumn.cli.ending import DAMAGE, OK, command, progress
from kolumn.cli.tables import print_rows
from kolumn.core.errors import ArgumentError

if TYPE_CHECKING:
    from kolumn import Erasure

_NOT_HERE = ("value_as", "key_as", "value_errors", "key_errors")
_MOST_ROWS = 20
_MOST_KEYS = 5


@command
@with_read_options(*(name for name in READING if name != "replicas"), "private_keys", *(name for name in PAYLOADS if name not in _NOT_HERE))
def erase(
    paths: Paths,
    output: Output = None,
    keys: Annotated[
        str | None, typer.Option(metavar="FILE", help="Keys of the records, one a line: text, or hex:… or base64:…; - is standard input.")
    ] = None,
    where: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A header, or value.PATH=VALUE; a record must meet all conditions.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Prove afterwards that nothing of the records is left, and that everything else is.")
    ] = False,
    index_interval_bytes: IndexInterval = 4096,
    json: Json = False,
    **options: OptionValue,
) -> int:
    """Write topic-partitions without certain records. All others keep their offsets, and other batches keep their bytes.

    The exit code is 1 if a check of --verify failed, if payloads that --where asks for could not be decoded, or if damage was left out.

    Example: `kolumn erase --keys persons.txt --verify /mnt/disk/accounts-* erased/`
    """
    sources, target = sources_and_target(paths, output)
    import kolumn
    from kolumn.readers.selection import text_of

    named = None if keys is None else list(_keys_in(keys))
    if named == []:
        raise ArgumentError(f"--keys {keys}: the key file is empty: write a key on each line, or leave it out")
    # To verify, source and target are read twice.
    with progress("erasing", lambda: (5 if verify else 1) * size_of(sources)) as advance:
        done = kolumn.erase(
            sources, target, keys=named, where=where, verify=verify, index_interval_bytes=index_interval_bytes, on_progress=advance,
            **options,
        )  # fmt: skip
    tables = {"partitions": done.partitions, "erased": done.erased, "leftOut": done.left_out, "verification": done.verification}
    tables |= {"replaced": done.replaced, "remoteLogMetadata": done.metadata} if done.replaced.num_rows else {}
    rows = {name: rows_of(table) for name, table in tables.items() if table is not None}
    verdict = "" if done.verification is None else f"; {_verdict(done)}"
    note(f"{counted(done.records, 'record')} erased in {counted(done.partitions.num_rows, 'partition')}{verdict}")
    unmatched = list(map(text_of, done.unmatched))
    if unmatched:
        # Quotes show a space at the end.
        more = f" and {len(unmatched) - _MOST_KEYS} more" if len(unmatched) > _MOST_KEYS else ""
        note(f"{counted(len(unmatched), 'key')} matched no record: {', '.join(map(repr, unmatched[:_MOST_KEYS]))}{more}")
    if done.undecided:
        note(
            f"{counted(done.undecided, 'record')} of which nobody knows whether they are meant: payloads that cannot be decoded. They stay"
        )
    if json:
        print_json({"ok": done.ok, **rows, "unlisted": done.unlisted, "unmatched": unmatched, "nextSteps": list(done.next_steps)})
    else:
        for row in rows["partitions"]:
            row["bytesRemoved"] = row["bytes"] - row.pop("bytesAfter")
        for title, name in (
            ("Written", "partitions"), ("Erased", "erased"), ("Not copied", "leftOut"), ("Of a tier", "replaced"),
            ("Needed in __remote_log_metadata", "remoteLogMetadata"), ("Verification", "verification"),
        ):  # fmt: skip
            if rows.get(name):
                print_rows(title, rows[name][:_MOST_ROWS])
                print(f"… and {len(rows[name]) - _MOST_ROWS} more: --json\n" if len(rows[name]) > _MOST_ROWS else "")
        print("\n".join(["What to do next", *(f"* {step}" for step in done.next_steps)]))
    code = say_of(done)
    return code or (OK if done.ok else DAMAGE)


def _verdict(done: "Erasure") -> str:
    """What the proof says of the erased records."""
    if done.verification is None or False in done.verification["ok"].to_pylist():
        return "NOT verified: some checks failed"
    if not done.records:
        return "verified: every record is as it was"
    if not done.also_kept:
        return "verified: nothing of them is left"
    kept = counted(done.also_kept, "record")
    verb = "that stays has" if done.also_kept == 1 else "that stay have"
    return f"verified: nothing else of them is left, but {kept} {verb} the same key or value (alsoKept)"


def _keys_in(name: str) -> Iterator[bytes]:
    """The keys in a file; no error says one."""
    from kolumn.readers.selection import bytes_of

    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as error:
        expected = "expected a file with one key a line, or - for standard input"
        raise ArgumentError(f"keys={name!r}: cannot be read: {error.strerror}: {expected}") from error
    for number, line in enumerate(data.splitlines(), 1):
        try:
            if line:
                yield bytes_of(line.decode("utf-8", "surrogateescape"))
        except ArgumentError:
            raise ArgumentError(f"keys={name!r}: line {number}: what follows hex: or base64: is not that") from None
