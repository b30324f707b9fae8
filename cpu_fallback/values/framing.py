"""Recognises the prefix of each payload, and looks up the schema that it names in a table of known keys."""

import kolumn.values.wire.compiled  # noqa: F401
from kolumn.core.deferred import register_jitable
from kolumn.cpu_fallback.machine.address import load64
from kolumn.cpu_fallback.machine.arrays import Int64s, Table
from kolumn.cpu_fallback.machine.compile import compiled
from kolumn.values.wire import framing

_FIVE, _NEVER = (1 << 40) - 1, -1
NULL = -1
"""Length of a row without a body."""
NO_SCHEMA, NO_ID = framing.NO_SCHEMA, framing.NO_ID
"""In the table of known keys: nobody knows the key."""
_FRAMING, _HIGH, _LOW, INDEX, _ID = range(5)
WIDTH = 5
"""Columns of the table of known keys: framing (`framing.NONE` for an empty row), two words of the key, index and id of the schema."""


@register_jitable
def _place(known: Table, kind: int, high: int, low: int) -> int:
    """Row of a key in the table: the row that has it, or else the empty row where it belongs."""
    last = known.shape[0] - 1
    # Ids are small and dense, and GUIDs are random: a multiplication spreads the former and keeps the latter.
    mixed = (low ^ (high << 1) ^ kind) * 0x2545F4914F6CDD1D
    row = (mixed ^ (mixed >> 32)) & last
    while known[row, _FRAMING] != framing.NONE:
        if known[row, _FRAMING] == kind and known[row, _HIGH] == high and known[row, _LOW] == low:
            return row
        row = (row + 1) & last
    return row


@compiled
def add_key(known: Table, kind: int, high: int, low: int, index: int, id: int) -> bool:
    """Note index and id of the schema of a key; returns whether the key is new. The table must have an empty row after that."""
    row = _place(known, kind, high, low)
    new = known[row, _FRAMING] == framing.NONE
    known[row, _FRAMING], known[row, _HIGH], known[row, _LOW], known[row, INDEX], known[row, _ID] = kind, high, low, index, id
    return new


@compiled
def recognise_prefixes(
    at: Int64s, length: Int64s, prefix: Int64s, kinds: Int64s, ids: Int64s, schema: Int64s,
    start: int, wanted: int, without: int, fixed: bool, known: Table,
) -> int:  # fmt: skip
    """Recognise prefixes from row ``start`` on: address and bytes become those of the body after it.

    ``length`` is -1 for null, and becomes so for a row whose schema is not known. Bytes of the prefix, framing, id in the prefix or else of
    the schema (`NO_ID` without one) and index of the schema are set for the rows with a payload whose framing is not that of a header.
    ``wanted`` is as for `framing.recognise`; ``without`` the index of the schema of a row without a prefix, or `NO_SCHEMA`. ``fixed``:
    every row with a prefix has the schema 0, and the table of known keys, of shape (power of two, `WIDTH`), is not used.

    Returns the first row whose key is not in the table, with its payload, framing and prefix as they were; or the number of rows."""
    last_kind, last_high, last_low, last_index, last_id = framing.NONE, 0, 0, without, NO_ID
    # The five bytes of the prefix of the row before: most rows have the same ones.
    again = _NEVER
    for row in range(start, at.shape[0]):
        if kinds[row] >= framing.CONFLUENT_HEADER or length[row] < 0:
            continue
        address, bytes = at[row], length[row]
        if bytes >= 8 and load64(address) & _FIVE == again:
            prefix[row], kinds[row], ids[row], schema[row] = 5, framing.CONFLUENT, last_id, last_index
            at[row], length[row] = address + 5, bytes - 5
            continue
        kind, size, high, low = framing.recognise(address, 0, bytes, wanted)
        if kind != last_kind or low != last_low or high != last_high:
            index, id = without if kind == framing.NONE else 0, NO_ID
            if kind != framing.NONE and not fixed:
                found = _place(known, kind, high, low)
                if known[found, _FRAMING] == framing.NONE:
                    return row
                index, id = known[found, INDEX], known[found, _ID]
            if kind in (framing.CONFLUENT, framing.APICURIO):
                id = low
            last_kind, last_high, last_low, last_index, last_id = kind, high, low, index, id
        prefix[row], kinds[row], ids[row], schema[row] = size, kind, last_id, last_index
        again = _NEVER
        if last_index == NO_SCHEMA:
            length[row] = NULL
        else:
            at[row], length[row] = address + size, bytes - size
            # With the id 0 the size decides between Confluent's framing and Apicurio's.
            if kind == framing.CONFLUENT and low != 0 and bytes >= 8:
                again = load64(address) & _FIVE
    return at.shape[0]
