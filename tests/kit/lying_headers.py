"""Segments whose headers lie with right checksums: a read of a range has to return what a read of all does, filtered.

``python -m kit.lying_headers SEED`` in ``tests`` compares one.
"""

import io
import json
import random
import struct
import sys
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa

import kolumn
from kit.encoder import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Record, batch, message, with_crc, wrapper
from kit.fuzz import replay
from kit.mutate import make_records
from kit.streams import STYLES
from kolumn.log import seek

TOPIC = "lies-0"
PLACE = ["segment", "position", "offset"]
OPTIONS: list[dict[str, Any]] = [
    {"threads": 1}, {"binary": "view", "threads": 1}, {"chunk_bytes": 100}, {"include_control": True},
    {"isolation_level": "read_committed"},
]  # fmt: skip
RANGES = 3
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Row = tuple[str, int, int]
"""Of the columns `PLACE`."""


class Asked(NamedTuple):
    """A range of offsets and of times (ms); None is no bound."""

    start_offset: int | None = None
    end_offset: int | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None

    def has(self, offset: int, timestamp: int) -> bool:
        """Whether a record is in it. One without a timestamp is in no range of times."""
        timed = (self.start_timestamp, self.end_timestamp) != (None, None)
        return _within(offset, *self[:2]) and not (timed and timestamp == -1) and _within(timestamp, *self[2:])

    @property
    def conditions(self) -> list[list[Any]]:
        """As the connector is asked."""
        named = ((">=", "offset", 1), ("<", "offset", 1), (">=", "timestamp", 1000), ("<", "timestamp", 1000))
        return [[compared, name, unit * value] for (compared, name, unit), value in zip(named, self, strict=True) if value is not None]


def _within(value: int, low: int | None, high: int | None) -> bool:
    return (low is None or value >= low) and (high is None or value < high)


@dataclass
class Log:
    """A partition: for each segment its base offset and its entries; ``lies`` says what was done to them."""

    segments: list[tuple[int, list[bytes]]]
    lies: list[str]


def make(seed: int) -> Log:
    rng, offset = random.Random(seed), 0
    log = Log([], [])
    for _ in range(rng.choice((1, 1, 1, 2))):
        base, entries = offset, []
        for _ in range(rng.randint(2, 7)):
            records = make_records(rng, offset, rng.randint(1, 6))
            entries.append(_entry(rng, records, log.lies))
            offset = max(record.offset for record in records) + rng.choice((1, 1, 1, 5))
        log.segments.append((base, entries))
    for _ in range(rng.randint(1, 3)):
        _, entries = rng.choice(log.segments)
        at = rng.randrange(len(entries))
        if rng.random() < 0.1:
            log.lies.append(f"entry {at} comes last")
            entries.append(entries.pop(at))
            continue
        name, entries[at] = (_lie_of_batch if entries[at][16] == 2 else _lie_of_message)(rng, entries[at])
        log.lies.append(f"entry {at}: {name}")
    return log


def _entry(rng: random.Random, records: list[Record], lies: list[str]) -> bytes:
    """An entry of any format and codec; in some, offsets do not grow, repeat themselves, or count from another base."""
    codec, magic = rng.randint(0, 4), rng.choice((0, 1, 2, 2, 2))
    first, last, inner_base = records[0].offset, records[-1].offset, None
    if rng.random() < 0.3:
        kind = rng.choice(("shuffled", "the same", "another base"))
        if kind == "shuffled":
            rng.shuffle(records)
        if kind == "the same":
            records = [replace(record, offset=rng.choice((first, last))) for record in records]
        if kind == "another base":
            inner_base = rng.choice((0, first, first + 1, max(first - 1, 0)))
        lies.append(f"offsets: {kind}")
    style = rng.choice(STYLES[codec])
    if magic == 2:
        flags = rng.choice((0, 0, LOG_APPEND_TIME, TRANSACTIONAL))
        return batch(
            records, codec=codec, style=style, flags=flags, base_offset=first, last_offset=last, producer_id=rng.choice((-1, 9)),
            base_sequence=rng.choice((-1, 0)),
        )  # fmt: skip
    flags = rng.choice((0, LOG_APPEND_TIME)) * magic
    records = [replace(record, headers=()) for record in records]
    if codec in (0, 4):
        return message(magic, records[0], flags)
    return wrapper(magic, records, codec, style=style, flags=flags, offset=last, inner_base=inner_base)


def _lie_of_batch(rng: random.Random, entry: bytes) -> tuple[str, bytes]:
    base, count, newest = _get(">q", entry, 0), _get(">i", entry, 57), _get(">q", entry, 35)
    near = (newest - 20_000, newest - 3000, newest - 1, newest + 1, newest + 20_000)
    name, form, at, value = rng.choice((
        ("last offset delta", ">i", 23, rng.choice((0, 1, count, count + 3, 1000, -1))),
        ("count", ">i", 57, rng.choice((0, count - 1, count + 1))),
        ("largest timestamp", ">q", 35, rng.choice((-1, 0, *near))),
        ("largest timestamp", ">q", 35, rng.choice((-1, 0, *near))),
        ("base timestamp", ">q", 27, rng.choice(near)),
        ("attributes", ">h", 21, _get(">h", entry, 21) ^ rng.choice((LOG_APPEND_TIME, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL))),
        ("base offset", ">q", 0, rng.choice((0, max(base - 4, 0), base + 4, base + 1000, base // 2))),
        ("producer", ">q", 43, rng.choice((-1, 9, 77, 2**62))),
        ("producer's epoch", ">h", 51, rng.choice((-1, 3))),
        ("sequence", ">i", 53, rng.choice((-1, 0, 2**31 - 1))),
    ))  # fmt: skip
    return f"{name} {value}", with_crc(_put(form, entry, at, value))


def _lie_of_message(rng: random.Random, entry: bytes) -> tuple[str, bytes]:
    offset, found = _get(">q", entry, 0), []
    found.append(("offset", ">q", 0, rng.choice((0, 0, max(offset - 3, 0), offset + 3, offset + 1000, offset // 2))))
    if entry[16] == 1:
        time = _get(">q", entry, 18)
        found.append(("attributes", ">B", 17, entry[17] ^ LOG_APPEND_TIME))
        found.append(("timestamp", ">q", 18, rng.choice((-1, 0, time - 20_000, time + 20_000))))
    name, form, at, value = rng.choice(found)
    return f"{name} {value}", with_crc(_put(form, entry, at, value))


def _get(form: str, entry: bytes, at: int) -> int:
    return int(struct.unpack_from(form, entry, at)[0])


def _put(form: str, entry: bytes, at: int, value: int) -> bytes:
    data = bytearray(entry)
    struct.pack_into(form, data, at, value)
    return bytes(data)


def compare(seed: int, scratch: Path) -> None:
    """Read ranges of one log in all ways."""
    log, rng = make(seed), random.Random(seed + 1)
    folder = scratch / TOPIC
    folder.mkdir()
    for base, entries in log.segments:
        (folder / f"{base:020d}.log").write_bytes(b"".join(entries))
    options = rng.choice(OPTIONS)
    whole = {errors: _rows(folder, {**options, "errors": errors}) for errors in ("skip", "raise")}
    assert whole["skip"] is not None
    # Half of the logs are narrowed as if they were large.
    with patch.object(seek, "SMALLEST", rng.choice((1, seek.SMALLEST))):
        for _ in range(RANGES):
            asked = _asked(rng, whole["skip"])
            for name in ("read", *rng.choices(list(OFTEN), list(OFTEN.values()))):
                errors = rng.choice([errors for errors, rows in whole.items() if rows is not None])
                expected = [row for row, timestamp in whole[errors] or () if asked.has(row[2], timestamp)]
                found = _believed(folder, WAYS[name](folder, asked, {**options, "errors": errors}))
                assert found == expected, f"{name}, {errors}, {options}: {asked}: {found}, expected {expected}: {log.lies}"


def _asked(rng: random.Random, rows: list[tuple[Row, int]]) -> Asked:
    offsets = [row[2] + rng.randint(-1, 1) for row, _ in rows] + [0, 1000]
    times = [timestamp + rng.randint(-1, 1) for _, timestamp in rows if timestamp > 0] + [1_700_000_000_000]
    low, high = sorted(rng.choices(offsets, k=2))
    early, late = sorted(rng.choices(times, k=2))
    kinds = ((low, None), (None, high), (low, high)), ((early, None), (None, late), (early, late))
    kind, none = rng.randrange(3), (None, None)
    offset, time = (rng.choice(one) for one in kinds)
    return Asked(*(offset if kind != 1 else none), *(time if kind != 0 else none))


def _rows(folder: Path, options: dict[str, Any]) -> list[tuple[Row, int]] | None:
    """The records of a read of all, with their timestamps; None if it raises."""
    try:
        found = kolumn.read(folder, columns=[*PLACE, "timestampMs"], **options)
    except kolumn.CorruptBatchError:
        return None
    rows = _places(found)
    kept = set(_believed(folder, rows))
    return [(row, timestamp) for row, timestamp in zip(rows, found["timestampMs"].to_pylist(), strict=True) if row in kept]


def _believed(folder: Path, rows: list[Row]) -> list[Row]:
    """The rows that do not contradict the names of segments and the offsets of a batch's header: a record outside of these is damage."""
    bases = sorted(int(path.name[:20]) for path in folder.iterdir())
    stops = dict(zip(bases, [*bases[1:], 2**63], strict=True))
    found = []
    for name, position, offset in rows:
        with open(name, "rb") as file:
            file.seek(position)
            head = file.read(61)
        base = int(Path(name).name[:20])
        first, last = base, stops[base] - 1
        if head[16] == 2:
            first = max(first, start := _get(">q", head, 0))
            last = min(last, start + _get(">i", head, 23))
        if first <= offset <= last:
            found.append((name, position, offset))
    return found


def _read(folder: Path, asked: Asked, options: dict[str, Any]) -> list[Row]:
    return _places(kolumn.read(folder, columns=PLACE, **asked._asdict(), **options))


def _scan(folder: Path, asked: Asked, options: dict[str, Any]) -> list[Row]:
    return _places(kolumn.scan(folder, columns=PLACE, **asked._asdict(), **options).read_all())


def _places(found: pa.Table | pa.RecordBatch) -> list[Row]:
    return list(zip(*(found[name].to_pylist() for name in PLACE), strict=True))


def _cat(folder: Path, asked: Asked, options: dict[str, Any]) -> list[Row]:
    from kolumn.cli import app
    from kolumn.cli.ending import Ended

    names = ("--start-offset", "--end-offset", "--since", "--until")
    given = [f"{name}={value}" for name, value in zip(names, asked, strict=True) if value is not None]
    for name, value in _shared(options).items():
        given.append(f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}"))
    out = io.TextIOWrapper(io.BytesIO())
    with redirect_stdout(out), patch.object(sys, "stderr", io.StringIO()), suppress(Ended, SystemExit):
        app(["cat", "--json", "--columns", ",".join(PLACE), *given, str(folder)])
    out.flush()
    return [tuple(map(json.loads(line).get, PLACE)) for line in out.buffer.getvalue().splitlines()]


def _polars(folder: Path, asked: Asked, options: dict[str, Any]) -> list[Row]:
    import polars as pl

    frame = kolumn.scan_polars(folder, columns=[*PLACE, "timestamp"], **options)
    for compared, name, value in asked.conditions:
        column, bound = pl.col(name), value if name == "offset" else _EPOCH + timedelta(microseconds=value)
        frame = frame.filter(column >= bound if compared == ">=" else column < bound)
    return frame.select(PLACE).collect().rows()


def _sql(folder: Path, asked: Asked, options: dict[str, Any]) -> list[Row]:
    from kolumn.options import Options
    from kolumn.readers.polars import Topics

    topics = Topics(folder, Options.of(columns=[*PLACE, "timestamp"], **options))
    bound = {"offset": "{}", "timestamp": "make_timestamptz({})"}
    where = " and ".join(f'"{name}" {compared} {bound[name].format(value)}' for compared, name, value in asked.conditions)
    try:
        query = f'select segment, position, "offset" from "{TOPIC[:-2]}" where {where}'
        return [row for batch in topics.ask(query) for row in _places(batch)]
    finally:
        topics.close()


def _shared(options: dict[str, Any]) -> dict[str, Any]:
    """Those that mean the same on the command line and in Spark."""
    return {name: value for name, value in options.items() if name in ("errors", "include_control", "isolation_level")}


def _spark_options(folder: Path, options: dict[str, Any]) -> dict[str, str]:
    own = {_camel(name): str(value).lower() for name, value in _shared(options).items()}
    return {"path": str(folder), "columns": ",".join([*PLACE, "timestamp"]), "splitBytes": "300", **own}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def _spark(folder: Path, asked: Asked, options: dict[str, Any]) -> list[Row]:
    from kolumn.spark_plugin.source import RecordSource

    given = {_camel(name): str(value) for name, value in asked._asdict().items() if value is not None}
    source = RecordSource(_spark_options(folder, options) | given)
    reader = source.reader(schema=source.schema())
    return [row for split in reader.partitions() for batch in reader.read(split) for row in _places(batch)]


def _connector(folder: Path, asked: Asked, options: dict[str, Any]) -> list[Row]:
    """What tasks return, of which Spark then keeps what the conditions let through."""
    from kolumn.spark_plugin.connector.questions import answer
    from kolumn.spark_plugin.connector.work import Work, unpacked
    from kolumn.spark_plugin.connector.worker import Task
    from kolumn.spark_plugin.read.splits import Split

    given = _spark_options(folder, options)
    schema = answer({"op": "schema", "options": given})["schema"]
    plan: Any = answer({
        "op": "plan", "options": given, "schema": schema, "asked": schema, "conditions": asked.conditions, "found": [], "limit": -1,
        "totals": [], "slots": 2, "keyed": False, "mustBeKeyed": False,
    })  # fmt: skip
    found = list[Row]()
    for text in plan["splits"]:
        task = Task(unpacked(text, Split), unpacked(plan["work"], Work))
        while (some := task.next()) is not None:
            times = [-1 if time is None else time // 1000 for time in some["timestamp"].cast(pa.int64()).to_pylist()]
            found += [row for row, time in zip(_places(some), times, strict=True) if asked.has(row[2], time)]
    return found


WAYS: dict[str, Callable[[Path, Asked, dict[str, Any]], list[Row]]] = {
    "read": _read, "scan": _scan, "cat": _cat, "Polars": _polars, "SQL": _sql, "Spark": _spark, "connector": _connector,
}  # fmt: skip
OFTEN = {"scan": 4, "Polars": 4, "Spark": 4, "connector": 4, "cat": 1, "SQL": 1}
"""How often ranges are read in each way beside `read`: some take much longer."""


if __name__ == "__main__":
    replay(compare)
