"""From a code in the batch table to an error with the expected and the found value."""

from isal import isal_zlib

from kolumn.core.arrays import Bytes
from kolumn.core.errors import Code, CorruptBatchError, error_kind
from kolumn.cpu_fallback.machine.checksum import crc32c
from kolumn.formats import layouts, memory, table
from kolumn.formats.entries import Entry
from kolumn.formats.varint import uvarint32, varint32, varint64

_VARINTS = {
    Code.RECORD_LENGTH,
    Code.OFFSET_DELTA,
    Code.OFFSET_RANGE,
    Code.KEY_LENGTH,
    Code.VALUE_LENGTH,
    Code.HEADER_COUNT,
    Code.HEADER_KEY,
    Code.HEADER_VALUE,
    Code.RECORD_END,
}

_OF_ATTRIBUTES = {Code.BAD_CODEC, Code.CODEC_NOT_ALLOWED, Code.MESSAGE_TYPE}


def header_error(path: str, row: Entry, entry: Bytes) -> CorruptBatchError:
    """Error for a row whose header or checksum is wrong; ``entry`` is the entry's bytes."""
    code = Code(row.code)
    expected, found = None, ""
    if code == Code.BAD_CRC:
        stored = row.crc
        computed = crc32c(entry, row.crc_from) if layouts.has_castagnoli(row.layout) else isal_zlib.crc32(entry[row.crc_from :])
        expected, found = f"the stored checksum 0x{stored:08x}", f"0x{computed:08x} over the {len(entry)} bytes of the batch"
    elif code == Code.BAD_MAGIC:
        found = str(row.magic)
    elif code in (Code.BAD_LENGTH, Code.MESSAGE_SIZE):
        found = str(row.size - 12)
    elif code == Code.LAST_OFFSET:
        found = "a last offset that wraps to below the base offset"
    return row_error(path, row, expected, found)


def row_error(path: str, row: Entry, expected: str | None, found: str) -> CorruptBatchError:
    """Error for the code of a row of the batch table."""
    code = Code(row.code)
    base = row.base_offset
    record = row.record
    if not found and code in _OF_ATTRIBUTES:
        found = str(int(row.codec if code != Code.MESSAGE_TYPE else row.attributes & 15))
    return error_kind(code)(
        path,
        row.position,
        code,
        base_offset=None if base == table.UNKNOWN else base,
        record=None if record < 0 else record,
        expected=expected,
        found=found,
    )


def record_found(row: Entry, payload: Bytes) -> str:
    """Description of the records' bytes at the place of the fault in a row."""
    code, where, record = Code(row.code), row.where, row.record
    end = len(payload)
    if code in (Code.RECORD_COUNT, Code.RECORDS_MISSING):
        held = f", {record} in the payload of {end} bytes" if record >= 0 else f" of a payload of {end} bytes"
        return f"{row.count} in the header{held}"
    if code == Code.RECORDS_REMAIN:
        return f"{row.count} in the header and {end - where} bytes after them"
    if code == Code.TAG_COUNT:
        return f"{row.count} in the tag, {record} in the payload"
    if code == Code.INNER_OFFSET:
        return f"{row.last_offset} in the wrapper"
    if where < 0 or where >= end:
        return f"the end of the {end} bytes"
    if code == Code.TIMESTAMP_DELTA:
        value, after = varint64(payload, where, end)
    elif code in _VARINTS and not layouts.holds_messages(row.layout):
        unsigned = layouts.LAYOUTS[row.layout].unsigned
        value, after = (uvarint32 if unsigned else varint32)(payload, where, end)
    elif code in (Code.INNER_MAGIC, Code.INNER_COMPRESSED, Code.MESSAGE_TYPE):
        value, after = memory.load8(payload, where), where + 1
    elif code == Code.RECORD_CRC:
        return f"0x{memory.u32_at(payload, where):08x} stored, and another one over its bytes"
    elif where + 4 <= end:
        value, after = memory.i32_at(payload, where), where + 4
    else:
        return f"{end - where} bytes left"
    return f"{value if after >= 0 else 'a malformed varint'} at byte {where} of {end}"
