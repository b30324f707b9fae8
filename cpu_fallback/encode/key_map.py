"""A table from keys to their last offsets, for compaction: keys are hashed and compared as bytes of an Arrow column.

The table has open addressing. A slot is 0, or the number of a distinct key plus 1, and above it 32 bits of the key's hash. Slots of some
rows are fetched into the cache before the first of them is looked at. The hash has a secret seed, so that nobody can make keys whose
slots are all the same.
"""

from typing import Any, NamedTuple

from kolumn.core.deferred import instruction, ir, register_jitable
from kolumn.cpu_fallback.encode.messages import ArrowPayloads, copy_payload, payload
from kolumn.cpu_fallback.machine.address import load8, load64, prefetch_read, store64
from kolumn.cpu_fallback.machine.arrays import Int64s
from kolumn.cpu_fallback.machine.compile import compiled

AHEAD = 32
"""Rows that are hashed before the first of them is looked up."""
START, LAST, WORDS = range(3)
"""Of a distinct key: where it begins among the bytes of all, and its last offset; how many such words."""
_LOW, _ABSENT = 0xFFFFFFFF, -1
_LAST, _KEY = 8 * LAST, 8 * WORDS


class KeyMap(NamedTuple):
    """Addresses of a table: of its slots, an int64 each, and the number of bits of a slot's number; of `WORDS` int64 for each distinct key,
    where the next one begins where it ends; of the bytes of these keys. And two secret numbers."""

    slots: int
    bits: int
    keys: int
    bytes: int
    seed: int
    more_seed: int


@instruction
def _folded(builder: Any, a: Any, b: Any) -> Any:
    """The two halves of the product of two unsigned words, combined by exclusive or."""
    wide, word = ir.IntType(128), ir.IntType(64)
    product = builder.mul(builder.zext(a, wide), builder.zext(b, wide))
    return builder.xor(builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), word), builder.trunc(product, word))


@register_jitable(forceinline=True)
def _tail(source: int, length: int) -> int:
    """Fewer than eight bytes as a word, nothing after them is read."""
    word = 0
    for i in range(length):
        word |= load8(source + i) << (8 * i)
    return word


@register_jitable(forceinline=True)
def _hash(map: KeyMap, source: int, length: int) -> int:
    hash, address, stop = map.seed ^ length, source, source + length
    while address + 8 <= stop:
        hash = _folded(hash ^ load64(address), map.more_seed)
        address += 8
    # Two words of keys of eight bytes or more may overlap, which is cheaper than to put a word together.
    last = load64(stop - 8) if length >= 8 else _tail(source, length)
    return _folded(hash ^ last, map.more_seed ^ map.seed)


@register_jitable(forceinline=True)
def _is_same(a: int, b: int, length: int) -> bool:
    done = 0
    while done + 8 <= length:
        if load64(a + done) != load64(b + done):
            return False
        done += 8
    while done < length:
        if load8(a + done) != load8(b + done):
            return False
        done += 1
    return True


@register_jitable(forceinline=True)
def _slot(map: KeyMap, hash: int) -> int:
    """Number of the first slot for a hash."""
    return hash & ((1 << map.bits) - 1)


@register_jitable(forceinline=True)
def _found(map: KeyMap, hash: int, source: int, length: int) -> tuple[int, int]:
    """Number of a key, `_ABSENT` if it is not in the table; and the slot where it is, or where there is room for it."""
    slot = _slot(map, hash)
    while True:
        held = load64(map.slots + 8 * slot)
        if held == 0:
            return _ABSENT, slot
        if (held ^ hash) >> 32 == 0:
            number = (held & _LOW) - 1
            key = map.keys + _KEY * number
            start = load64(key)
            if load64(key + _KEY) - start == length and _is_same(map.bytes + start, source, length):
                return number, slot
        slot = (slot + 1) & ((1 << map.bits) - 1)


@compiled
def add_keys(map: KeyMap, keys: ArrowPayloads, offsets: int, row: int, rows: int, most_keys: int, most_bytes: int, used: Int64s) -> int:
    """Add rows to a table from ``row`` on, as long as there is room; those without a key are left out. Returns the first row not added. The
    table has `most_keys` rooms for keys and one more, ``most_bytes`` for their bytes and padding, and more slots than keys. ``offsets`` is
    the address of an int64 for each row. ``used`` are the numbers of distinct keys and of their bytes, and `AHEAD` words of scratch."""
    while row < rows:
        some = min(rows - row, AHEAD)
        for i in range(some):
            source, length = payload(keys, row + i)
            hash = _hash(map, source, max(length, 0))
            used[2 + i] = hash
            prefetch_read(map.slots + 8 * _slot(map, hash))
        for i in range(some):
            source, length = payload(keys, row + i)
            if length < 0:
                continue
            offset, hash = load64(offsets + 8 * (row + i)), used[2 + i]
            number, slot = _found(map, hash, source, length)
            if number != _ABSENT:
                key = map.keys + _KEY * number
                store64(key + _LAST, max(offset, load64(key + _LAST)))
                continue
            number, stop = used[0], used[1] + length
            if number == most_keys or stop > most_bytes:
                return row + i
            copy_payload(map.bytes + used[1], source, length, keys.stop)
            key = map.keys + _KEY * number
            store64(key + _KEY, stop)
            store64(key + _LAST, offset)
            store64(map.slots + 8 * slot, (number + 1) | (hash >> 32 << 32))
            used[0] = number + 1
            used[1] = stop
        row += some
    return row


@compiled
def place_keys(map: KeyMap, count: int) -> None:
    """Fill the slots of a table, which are 0, from its ``count`` distinct keys."""
    for number in range(count):
        key = map.keys + _KEY * number
        start = load64(key)
        hash = _hash(map, map.bytes + start, load64(key + _KEY) - start)
        slot = _slot(map, hash)
        while load64(map.slots + 8 * slot) != 0:
            slot = (slot + 1) & ((1 << map.bits) - 1)
        store64(map.slots + 8 * slot, (number + 1) | (hash >> 32 << 32))


@compiled
def find_keys(map: KeyMap, keys: ArrowPayloads, rows: int, offsets: int) -> None:
    """Set an int64 for each row, from the address ``offsets`` on: the last offset of its key; -1 if it is not in the table, or is null."""
    for row in range(rows):
        source, length = payload(keys, row)
        last = -1
        if length >= 0:
            number, _ = _found(map, _hash(map, source, length), source, length)
            if number != _ABSENT:
                last = load64(map.keys + _KEY * number + _LAST)
        store64(offsets + 8 * row, last)
