"""Hypothesis strategies: segments of any entries with the rows that they hold."""

from typing import Any

from hypothesis import strategies as st

from kit.encoder import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, Record, batch, message, wrapper
from kit.oracle import Row
from kit.streams import CODECS, STYLES

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
BLOBS = (
    st.none() | st.binary(max_size=40) | st.builds(lambda byte, size: byte * size, st.binary(min_size=1, max_size=1), st.integers(0, 3000))
)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=10)), max_size=3)
Entry = tuple[bytes, list[Row], int]
"""Bytes of an entry, its rows with positions that count from it, and the next offset."""


@st.composite
def batches(draw: st.DrawFn, offset: int) -> Entry:
    """A batch of format 2."""
    count, codec = draw(st.integers(0, 5)), draw(st.integers(0, 4))
    flags = draw(st.sampled_from([0, LOG_APPEND_TIME, TRANSACTIONAL, TRANSACTIONAL | CONTROL]))
    pid, epoch, sequence = draw(INT64), draw(st.integers(-32768, 32767)), draw(st.integers(-1, (1 << 31) - 1))
    leader, base_time, append_time = draw(st.integers(-1, (1 << 31) - 1)), draw(INT64), draw(INT64)
    at, records, rows = offset, [], []
    for _ in range(count):
        at += draw(st.integers(0, 3))
        # A delta has 64 bits as well: the timestamp wraps around in writing and again in reading.
        time, key, value, headers = draw(INT64), draw(BLOBS), draw(BLOBS), draw(HEADERS)
        records.append(Record(at, key, value, time, tuple((name.encode(), data) for name, data in headers)))
        rows.append(Row(
            at, append_time if flags & LOG_APPEND_TIME else time, flags >> 3 & 1, key, value, tuple(headers), pid, epoch,
            -1 if sequence < 0 else (sequence + at - offset) % (1 << 31), leader, bool(flags & TRANSACTIONAL), bool(flags & CONTROL),
            2, CODECS[codec], 0,
        ))  # fmt: skip
        at += 1
    data = batch(
        records, codec=codec, style=draw(st.sampled_from(STYLES[codec])), flags=flags, base_offset=offset, base_timestamp=base_time,
        last_offset=max(at - 1, offset), max_timestamp=append_time if flags & LOG_APPEND_TIME else None, producer_id=pid,
        producer_epoch=epoch, base_sequence=sequence, leader_epoch=leader,
    )  # fmt: skip
    return data, rows, max(at, offset + 1)


def _row(record: Record, magic: int, codec: int, append: bool, time: int) -> Row:
    kind, time = (int(append), time) if magic else (-1, -1)
    return Row(record.offset, time, kind, record.key, record.value, (), -1, -1, -1, -1, False, False, magic, CODECS[codec], 0)


@st.composite
def messages(draw: st.DrawFn, offset: int) -> Entry:
    """A message of format 0 or 1."""
    magic, append = draw(st.integers(0, 1)), draw(st.booleans())
    record = Record(offset, draw(BLOBS), draw(BLOBS), draw(INT64))
    data = message(magic, record, LOG_APPEND_TIME * append * magic, trailing=draw(st.binary(max_size=3)))
    return data, [_row(record, magic, 0, append, record.timestamp)], offset + 1


@st.composite
def wrappers(draw: st.DrawFn, offset: int) -> Entry:
    """A compressed message set of format 0 or 1."""
    magic, append, codec = draw(st.integers(0, 1)), draw(st.booleans()), draw(st.integers(1, 3))
    records = []
    for _ in range(draw(st.integers(1, 5))):
        offset += draw(st.integers(0, 3))
        records.append(Record(offset, draw(BLOBS), draw(BLOBS), draw(INT64)))
        offset += 1
    outer_time = draw(INT64) if append else max(record.timestamp for record in records)
    options: dict[str, Any] = {"timestamp": outer_time, "garbage": draw(st.binary(max_size=11))}
    if magic == 1 and draw(st.booleans()):
        options["inner_base"] = draw(st.integers(max(0, records[0].offset - 5), records[0].offset))
    elif magic == 1 and draw(st.booleans()):
        options |= {"inner_base": 0, "offset": 0}
    data = wrapper(magic, records, codec, style=draw(st.sampled_from(STYLES[codec])), flags=LOG_APPEND_TIME * append * magic, **options)
    return data, [_row(r, magic, codec, append, outer_time if append else r.timestamp) for r in records], offset


@st.composite
def segments(draw: st.DrawFn) -> tuple[bytes, list[Row]]:
    """Bytes of a segment of mixed formats and codecs, and its rows."""
    data, rows, offset = b"", list[Row](), draw(st.sampled_from([0, 1, 1000, 1 << 40]))
    for kind in draw(st.lists(st.sampled_from([batches, messages, wrappers]), max_size=6)):
        more, own, offset = draw(kind(offset))
        rows += [row._replace(position=len(data)) for row in own]
        data += more
        offset += draw(st.integers(0, 2))
    return data, rows
