"""Copies of strings in words, for the CPU. Nothing outside of source and target is touched: values may end where their memory ends."""

from kolumn.cpu_fallback.machine.address import STEP, copy16, copy32, load8, load32, load64, store8, store32, store64
from kolumn.formats.machine_code.deferred import overload, register_jitable
from kolumn.values.wire import text

_HIGH = -0x7F7F7F7F7F7F7F80
"""The highest bit of each of eight bytes."""


@register_jitable
def _copy(target: int, source: int, size: int) -> None:
    if size > 16:
        done = 0
        while done < size - STEP:
            copy32(target + done, source + done)
            done += STEP
        # The last 32 bytes, some of them again; the last two times 16 if there are no 32.
        if size >= STEP:
            copy32(target + size - STEP, source + size - STEP)
        else:
            copy16(target, source)
            copy16(target + size - 16, source + size - 16)
    elif size >= 8:
        store64(target, load64(source))
        store64(target + size - 8, load64(source + size - 8))
    elif size >= 4:
        store32(target, load32(source))
        store32(target + size - 4, load32(source + size - 4))
    else:
        for k in range(size):
            store8(target + k, load8(source + k))


@register_jitable(forceinline=True)
def _copy_ascii(target: int, source: int, size: int) -> int:
    if size >= 8:
        if size <= 16:
            low, high = load64(source), load64(source + size - 8)
            store64(target, low)
            store64(target + size - 8, high)
            return 0x80 if (low | high) & _HIGH != 0 else 0
        return _copy_long(target, source, size)
    if size >= 4:
        low, high = load32(source), load32(source + size - 4)
        store32(target, low)
        store32(target + size - 4, high)
        return 0x80 if (low | high) & 0x80808080 != 0 else 0
    if size == 0:
        return 0
    # One, two or three bytes: the first, the middle and the last one, which may be the same.
    low, middle, high = load8(source), load8(source + (size >> 1)), load8(source + size - 1)
    store8(target, low)
    store8(target + (size >> 1), middle)
    store8(target + size - 1, high)
    return low | middle | high


@register_jitable
def _copy_long(target: int, source: int, size: int) -> int:
    bits = load64(source + size - 8)
    done = 0
    while done < size - 8:
        word = load64(source + done)
        bits |= word
        store64(target + done, word)
        done += 8
    store64(target + size - 8, load64(source + size - 8))
    return 0x80 if bits & _HIGH != 0 else 0


@overload(text.copy, target="cpu")
def _copied(target, source, size):  # type: ignore[no-untyped-def]
    return lambda target, source, size: _copy(target, source, size)


@overload(text.copy_ascii, target="cpu")
def _copied_ascii(target, source, size):  # type: ignore[no-untyped-def]
    return lambda target, source, size: _copy_ascii(target, source, size)
