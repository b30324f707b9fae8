"""An Arrow array as a column on the device: what the host had to decode of a chunk whose other columns are there."""

import numpy as np
import pyarrow as pa

from kolumn.kernels.columns.table import Column
from kolumn.kernels.machine.runtime import Memory, Runtime
from kolumn.kernels.values.typed import kind_of


def uploaded(device: Runtime, array: pa.Array) -> Column:
    """A copy of an array of numbers, flags, times, text, bytes, lists, structs, or a dictionary of text, in the types of `kind_of`."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if array.offset:
        array = pa.concat_arrays([array])
    kind, rows, nulls = kind_of(array.type), len(array), array.null_count
    mask = _mask(device, array) if nulls else None
    if kind == "struct":
        children = tuple(uploaded(device, array.field(number)) for number in range(array.type.num_fields))
        return Column(kind, rows, None, mask, nulls, children, tuple(one.name for one in array.type))
    if kind == "bool":
        flags = np.asarray(array.fill_null(False)).astype(np.uint8)
        return Column(kind, rows, device.upload(flags), mask, nulls)
    if kind == "list":
        return Column(kind, rows, None, mask, nulls, (_ends(device, array), uploaded(device, array.values)))
    if kind in ("string", "bytes"):
        data = array.buffers()[2]
        ends = _ends(device, array)
        size = np.frombuffer(array.buffers()[1], np.int32, rows + 1)[-1] if rows else 0
        held = device.upload(np.frombuffer(data, np.uint8, size)) if size else device.empty(0)
        if kind == "string":
            return Column(kind, rows, held, mask, nulls, (ends,))
        return Column(kind, rows, None, mask, nulls, (ends, Column("uint8", int(size), held)))
    width = array.type.bit_width // 8
    words = np.frombuffer(array.buffers()[1], np.uint8, width * rows) if rows else np.empty(0, np.uint8)
    return Column(kind, rows, device.upload(words) if rows else device.empty(0), mask, nulls)


def _ends(device: Runtime, array: pa.Array) -> Column:
    rows = len(array)
    ends = np.frombuffer(array.buffers()[1], np.int32, rows + 1) if rows else np.zeros(1, np.int32)
    return Column("int32", rows + 1, device.upload(ends))


def _mask(device: Runtime, array: pa.Array) -> Memory:
    """Validity in words of 32 rows."""
    bits = np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    words = np.full(-(-len(array) // 32) * 4, 0xFF, np.uint8)
    words[: len(bits)] = bits
    return device.upload(words)
