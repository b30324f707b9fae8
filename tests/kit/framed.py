"""Which records of an entry can be read if others are wrong, found by the independent reader: each record alone, in an entry of its own.

Lengths lead from one record to the next. After a wrong record they are believed only if they lead to the end of the payload, because one of
them may be what is wrong.
"""

import struct

from kit.encoder import with_crc
from kit.inflate import BadStreamError, inflate
from kit.oracle import BadEntryError, Cursor, Row, message_row, read_entry, read_message
from kit.streams import CODECS

_HEADER = 61


def sound_rows(data: bytes, position: int) -> list[Row]:
    """Rows of the records of an entry that are right; none where its checksum is wrong, or nothing tells what its offsets count from."""
    entry = read_entry(data, position)
    if entry.error is None:
        return entry.rows
    try:
        return _of_batch(data, position) if data[16] == 2 else _of_wrapper(data, position) if data[16] in (0, 1) else []
    except (BadEntryError, BadStreamError, struct.error, IndexError):
        return []


def _of_batch(data: bytes, position: int) -> list[Row]:
    codec = data[22] & 7
    if with_crc(data) != data or len(data) < _HEADER:
        return []
    pieces, whole = _records(inflate(codec, data[_HEADER:], 2) if codec else data[_HEADER:])
    found: list[Row] = []
    for piece in pieces:
        size, plain, one = (
            number.to_bytes(width, "big") for number, width in ((_HEADER - 12 + len(piece), 4), (data[22] & 0xF8, 1), (1, 4))
        )
        alone = with_crc(data[:8] + size + data[12:22] + plain + data[23:57] + one + piece)
        read = read_entry(alone, position)
        if read.error is not None and not whole:
            break
        found += [row._replace(codec=CODECS[codec]) for row in read.rows] if read.error is None else []
    return found


def _records(payload: bytes) -> tuple[list[bytes], bool]:
    """Records by their lengths, and whether these lead to the end."""
    cursor, found = Cursor(payload), list[bytes]()
    while cursor.left:
        start = cursor.at
        try:
            size = cursor.varint()
            # Zeros would be a chain of records of no bytes; a length of zero in more than one byte is a wrong record that leads on.
            if size < 0 or cursor.at + size - start == 1:
                return found, False
            cursor.take(size)
        except (BadEntryError, IndexError):
            return found, False
        found.append(payload[start : cursor.at])
    return found, True


def _of_wrapper(data: bytes, position: int) -> list[Row]:
    outer = read_message(data, True)
    codec = outer.attributes & 7
    if codec not in (1, 2, 3) or outer.value is None:
        return []
    inner, at, pieces = inflate(codec, outer.value, outer.magic), 0, list[bytes]()
    while len(inner) - at >= 12 and 14 <= (size := struct.unpack_from(">i", inner, at + 8)[0]) <= len(inner) - at - 12:
        pieces.append(inner[at : at + 12 + size])
        at += 12 + size
    whole, base = at == len(inner), 0
    if outer.magic == 1 and outer.offset != 0:
        base = outer.offset - struct.unpack_from(">q", pieces[-1])[0]
        if base < 0 or not whole:
            return []
    found: list[Row] = []
    for piece in pieces:
        try:
            found.append(message_row(outer, read_message(piece, True), base, position))
        except (BadEntryError, struct.error, IndexError):
            if not whole:
                break
    return found
