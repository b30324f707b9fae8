"""Redpanda's record batch: the records of Kafka's format 2 after a header of 61 bytes in little-endian.

    0      4      8         16   17    21    23         27         35         43     51    53         57      61
    +------+------+---------+----+-----+-----+----------+----------+----------+------+-----+----------+-------+--
    |header| size | base    |type| crc |attr.| last off-| base     | max      |prod- |prod.| base     |record | records,
    | crc  | i32  | offset  | i8 | u32 | i16 | set delta| timestamp| timestamp|ucer  |epoch| sequence |count  | plain or
    | u32  |      | i64     |    |     |     | i32      | i64      | i64      |i64   |i16  | i32      |i32    | one stream
    +------+------+---------+----+-----+-----+----------+----------+----------+------+-----+----------+-------+--
           |<-------- header crc: CRC-32C over [4, 61) ------------------------------------------------------>|
                                       |<-- crc: CRC-32C over [21, end), with the header's fields in big-endian -->

    size        all bytes of the batch, these 61 too
    base offset the raw offset: that of a consumer is smaller by the number of offsets that batches of the types `FILTERED` took before
    type        1 records of clients and their markers; others are Redpanda's own, and no consumer gets them
    attributes  bits 0-2 codec · 3 append time · 4 transactional · 5 control

So ``crc`` equals that of the same batch in Kafka's format 2, which says what is compared here: a batch converted to it keeps its checksum.
There is no leader epoch: the term in the segment's name is that of its batches. Zeros after the last batch are space that was allocated
in advance.

Source: the layout as Redpanda's own files and its public tools show it (tools/offline_log_viewer, tools/rp_storage_tool).
"""

from collections.abc import Iterator

from kolumn.core.arrays import Bytes, Row
from kolumn.core.errors import Code
from kolumn.formats import crc, layout, table, v2
from kolumn.formats.entry import holds_offset
from kolumn.formats.layout import Family, Format, Layout, Outline
from kolumn.formats.memory import (
    Buffer,
    i16_at,
    i16_little_at,
    i32_little_at,
    i64_at,
    i64_little_at,
    load8,
    put16,
    put16_little,
    put32,
    put32_little,
    put64_little,
    store8,
    u32_at,
    u32_little_at,
)  # fmt: skip

HEADER, HEADER_CRC_FROM, FIELDS_FROM, CRC_FROM = 61, 4, 21, 57
"""Bytes of the header; the first byte under the header's checksum, and under that of the records; and the last four bytes of the header,
from which on that is compared: they are swapped by what is added to its register there, and all bytes before are in that register."""
DATA = 1
TYPES = (
    "", "raft_data", "raft_configuration", "controller", "kvstore", "checkpoint", "topic_management_cmd", "ghost_batch", "id_allocator",
    "tx_prepare", "tx_fence", "tm_update", "user_management_cmd", "acl_management_cmd", "group_prepare_tx", "group_commit_tx",
    "group_abort_tx", "node_management_cmd", "data_policy_management_cmd", "archival_metadata", "cluster_config_cmd", "feature_update",
    "cluster_bootstrap_cmd", "version_fence", "tx_tm_hosted_transactions", "prefix_truncate", "plugin_update", "tx_registry",
    "cluster_recovery_cmd", "compaction_placeholder", "role_management_cmd", "client_quota", "data_migration_cmd", "group_fence_tx",
    "partition_properties_update", "datalake_coordinator", "dl_placeholder", "dl_stm_command", "datalake_translation_state",
)  # fmt: skip
"""Names of the types, by their numbers, as of December 2024."""
FILTERED = (2, 19, 23, 25, 34, 38)
"""Types whose batches have raw offsets, and no consumer offsets."""
ELSEWHERE = 36
"""The type of batches whose records are in other objects (cloud topics)."""
_GHOST, _PLACEHOLDER, _KNOWN = 7, 29, len(TYPES)
_LOW = (1 << 48) - 1
_HORIZON = 1 << 6  # attribute of Kafka's batches
ZERO = 256
"""Stands for type 0 in the batch table, where 0 says that there is no type. It is unknown as well."""
_OK, _TRUNCATED, _ZERO_TAIL, _BAD_LENGTH = int(Code.OK), int(Code.TRUNCATED), int(Code.ZERO_TAIL), int(Code.BAD_LENGTH)
_BAD_LAST_OFFSET, _HEADER_CRC = int(Code.LAST_OFFSET), int(Code.HEADER_CRC)


def entry(buf: Buffer, pos: int, end: int) -> tuple[int, int]:
    """Frame the batch at ``pos``: a code and a size, as `kolumn.formats.entry.entry` does. Only a header whose checksum is right is
    believed to be that of a batch which goes on after ``end``."""
    left = end - pos
    if left < HEADER:
        return _TRUNCATED, left
    size = i32_little_at(buf, pos + 4)
    if size == 0:
        return _ZERO_TAIL, 0
    if size < HEADER:
        return _BAD_LENGTH, 0
    if size > left:
        return _TRUNCATED if has_header(buf, pos) else _BAD_LENGTH, size
    return _OK, size


def has_header(buf: Buffer, pos: int) -> bool:
    """Whether the header at ``pos`` has the right checksum; 61 zeros have not."""
    return u32_little_at(buf, pos) == crc.crc32c(buf, pos + HEADER_CRC_FROM, pos + HEADER)


def header(buf: Buffer, pos: int, size: int, row) -> int:  # type: ignore[no-untyped-def]
    """Fill one row of the batch table from the 61 bytes at ``pos`` of an entry of ``size`` bytes; returns a code."""
    kind, attributes, delta = (load8(buf, pos + 16) ^ 128) - 128, load8(buf, pos + 21), i32_little_at(buf, pos + 23)
    row[table.MAGIC], row[table.BATCH_TYPE], row[table.PAYLOAD], row[table.CRC_FROM] = v2.MAGIC, kind or ZERO, HEADER, CRC_FROM
    row[table.BASE_OFFSET] = row[table.LAST_OFFSET] = base_offset(buf, pos)
    fits = holds_offset(row[table.BASE_OFFSET], delta)
    row[table.LAST_OFFSET] += delta if fits else 0
    row[table.COUNT], row[table.CODEC], row[table.CRC] = i32_little_at(buf, pos + 57), attributes & 7, u32_little_at(buf, pos + 17)
    row[table.ATTRIBUTES], row[table.TIMESTAMP_TYPE] = i16_little_at(buf, pos + 21), (attributes >> 3) & 1
    row[table.BASE_TIMESTAMP], row[table.MAX_TIMESTAMP] = i64_little_at(buf, pos + 27), i64_little_at(buf, pos + 35)
    row[table.PRODUCER_ID], row[table.PRODUCER_EPOCH] = i64_little_at(buf, pos + 43), i16_little_at(buf, pos + 51)
    row[table.BASE_SEQUENCE], row[table.LEADER_EPOCH] = i32_little_at(buf, pos + 53), -1
    row[table.TRANSACTIONAL] = (attributes >> 4) & 1 if kind == DATA else 0
    row[table.CONTROL] = (attributes >> 5) & 1 if kind == DATA else 1
    row[table.CRC_SEED] = _swapped(buf, pos)
    if not has_header(buf, pos):
        return _HEADER_CRC
    return _OK if fits else _BAD_LAST_OFFSET


def header_crc(entry: Bytes | bytes) -> int:
    """The header's checksum as a batch stores it."""
    return u32_little_at(entry, 0)


def is_opaque(kind: int) -> bool:
    """Whether nothing in a batch of a type is decoded: it has no records, they are elsewhere, or the type is not known."""
    return kind in (_GHOST, _PLACEHOLDER, ELSEWHERE) or kind >= _KNOWN or kind <= 0


def base_offset(buf: Buffer, pos: int) -> int:
    """The raw offset in the header at ``pos``."""
    return i64_little_at(buf, pos + 8)


def _swapped(buf: Buffer, pos: int) -> int:
    """What the register of the checksum differs by at `CRC_FROM` from its initial value, so that the bytes there may stay as they are.

    The fields from the attributes on enter the register as big-endian. A word in big-endian, loaded as little-endian, is the word as it is
    here, loaded as big-endian."""
    first, most, producer = i64_at(buf, pos + 27), i64_at(buf, pos + 35), i64_at(buf, pos + 43)
    register = 0xFFFFFFFF ^ crc.crc32c_of_words(
        (u32_at(buf, pos + 19) & 0xFFFF) | (u32_at(buf, pos + 23) << 16) | _on_top(first),
        (first >> 16) & _LOW | _on_top(most),
        (most >> 16) & _LOW | _on_top(producer),
        (producer >> 16) & _LOW | _on_top(i16_at(buf, pos + 51)),
        u32_at(buf, pos + 53),
    )
    return register ^ u32_at(buf, pos + CRC_FROM) ^ u32_little_at(buf, pos + CRC_FROM) ^ 0xFFFFFFFF


def _on_top(value: int) -> int:
    """The low 16 bits of a number as the high ones of a signed word."""
    return (((value & 0xFFFF) ^ 0x8000) - 0x8000) << 48


def put_header(buf: Buffer, pos: int, size: int, row) -> None:  # type: ignore[no-untyped-def]
    """Write the 61 header bytes of an entry of ``size`` bytes at ``pos`` from a row of the batch table, without the two checksums. A row
    without a type is that of a batch with records of clients."""
    put32_little(buf, pos + 4, size)
    put64_little(buf, pos + 8, row[table.BASE_OFFSET])
    kind = row[table.BATCH_TYPE] if row[table.BATCH_TYPE] != 0 else DATA
    store8(buf, pos + 16, kind)
    flags = (row[table.TIMESTAMP_TYPE] << 3) | (row[table.TRANSACTIONAL] << 4) | ((row[table.CONTROL] << 5) if kind == DATA else 0)
    put16_little(buf, pos + 21, row[table.CODEC] | flags)
    put32_little(buf, pos + 23, row[table.LAST_OFFSET] - row[table.BASE_OFFSET])
    put64_little(buf, pos + 27, row[table.BASE_TIMESTAMP])
    put64_little(buf, pos + 35, row[table.MAX_TIMESTAMP])
    put64_little(buf, pos + 43, row[table.PRODUCER_ID])
    put16_little(buf, pos + 51, row[table.PRODUCER_EPOCH])
    put32_little(buf, pos + 53, row[table.BASE_SEQUENCE])
    put32_little(buf, pos + 57, row[table.COUNT])


def put_checksums(buf: Buffer, pos: int, size: int) -> None:
    """Write both checksums of the entry of ``size`` bytes at ``pos``, of which all else is written."""
    put32_little(buf, pos + 17, crc.crc32c_from(_swapped(buf, pos) ^ 0xFFFFFFFF, buf, pos + CRC_FROM, pos + size))
    put32_little(buf, pos, crc.crc32c(buf, pos + HEADER_CRC_FROM, pos + HEADER))


def of_v2(buf: Buffer, pos: int, size: int, row) -> None:  # type: ignore[no-untyped-def]
    """Replace the header of a batch of format 2, of which ``row`` is filled, by one of Redpanda; its records and their checksum stay. Only
    without its delete horizon, which Redpanda's batches do not have, it gets another checksum."""
    put_header(buf, pos, size, row)
    put16_little(buf, pos + 21, row[table.ATTRIBUTES] & ~_HORIZON)
    if row[table.ATTRIBUTES] & _HORIZON != 0:
        put_checksums(buf, pos, size)
        return
    put32_little(buf, pos + 17, row[table.CRC])
    put32_little(buf, pos, crc.crc32c(buf, pos + HEADER_CRC_FROM, pos + HEADER))


def to_v2(buf: Buffer, pos: int, size: int, row) -> None:  # type: ignore[no-untyped-def]
    """Replace the header of a batch by one of format 2, with the offsets and the leader epoch of ``row``, which is filled; the records and
    their checksum stay."""
    v2.put_header(buf, pos, size, row)
    put16(buf, pos + 21, row[table.ATTRIBUTES])
    put32(buf, pos + 17, row[table.CRC])


def plausible(buf: Buffer, pos: int, size: int) -> bool:
    """Whether a batch begins here, by the checksum of its header."""
    return has_header(buf, pos)


def believable(head: Bytes, row: Row) -> bool | None:
    """Fill a row from a header whose length or checksum may be wrong; False if no writer writes such a header."""
    code = row[table.CODE] = header(head, 0, HEADER, row)
    return code in (_OK, _HEADER_CRC) and 0 <= int(row[table.ATTRIBUTES]) < 64


def shapes(head: Bytes, size: int) -> Iterator[Outline]:
    """The layout of a batch whose size is not believed: see `kolumn.formats.layout.Format.own_shapes`."""
    if size >= HEADER:
        yield Outline(HEADER, CRC_FROM, u32_little_at(head, 17), True, _swapped(head, 0) ^ 0xFFFFFFFF, mark=16)


LAYOUT = Layout(
    "Redpanda's record batch", 9, Family.RECORDS, HEADER, crc_at=0, crc_from=0, castagnoli=True,
    header=header, plausible=plausible, codec_code=v2.codec_code, hop=v2.following,
    smallest_record=v2.SMALLEST_RECORD, control_types=v2.CONTROL_TYPES,
    holds={v2.MAGIC: (layout.RECORD_BATCH - {layout.HORIZONS}) | {layout.OWN_TYPES, layout.ELSEWHERE}}, streamed=True, sealed=True,
)  # fmt: skip
FORMAT = Format(
    "redpanda", {}, v2.MAGIC, own_frame=entry, own_offset=base_offset, own_shapes=shapes, own_believable=believable,
    own_layouts=(LAYOUT,), as_shipped=True, raw_offsets=True, indexed=False,
)  # fmt: skip
