"""Arrow's arrays as columns on a device: what the host has decoded."""

import numpy as np
import pyarrow as pa

from kolumn.core.arrays import AnyArray
from kolumn.kernels.columns.table import Column, payload_column
from kolumn.kernels.machine.runtime import Memory, Runtime
from kolumn.kernels.values.typed import kind_of

_NARROW = ((9, "decimal32", np.int32), (18, "decimal64", np.int64))
"""The most digits of the decimals that Spark's accelerator keeps in fewer bytes."""


def uploaded(device: Runtime, array: pa.Array, narrow: bool = False) -> Column:
    """Copy an array to the device, in the types of `kind_of`: numbers, flags, times, text, bytes, lists, maps, structs, dictionaries of
    text. ``narrow``: decimals of up to 9 and 18 digits in 32 and 64 bits. Raises `ArgumentError` for a type that cuDF has not."""
    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_null(array.type):
        array = pa.nulls(len(array), pa.int8())
    if array.offset:
        array = pa.concat_arrays([array])
    kind, rows, nulls = kind_of(array.type), len(array), array.null_count
    mask = _mask(device, array) if nulls else None
    if kind == "struct":
        # Null structs have null members in cuDF, and null members have no bytes.
        members = (member.take(np.arange(rows)) for member in array.flatten()) if nulls else array.flatten()
        children = tuple(uploaded(device, member, narrow) for member in members)
        return Column(kind, rows, None, mask, nulls, children, tuple(one.name for one in array.type))
    if kind == "bool":
        return Column(kind, rows, device.upload(np.asarray(array.fill_null(False)).astype(np.uint8)), mask, nulls)
    if kind == "list":
        values = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"]) if pa.types.is_map(array.type) else array.values
        ends = Column("int32", rows + 1, device.upload(_ends(array)))
        return Column(kind, rows, None, mask, nulls, (ends, uploaded(device, values, narrow)))
    if kind in ("string", "bytes"):
        if pa.types.is_fixed_size_binary(array.type):
            array = array.cast(pa.binary())
        bounds = _ends(array)
        size = int(bounds[-1])
        held = device.upload(np.frombuffer(array.buffers()[2], np.uint8, size)) if size else device.empty(0)
        return payload_column(kind, rows, device.upload(bounds), held, size, mask, nulls)
    width = array.type.bit_width // 8
    words: AnyArray = np.frombuffer(array.buffers()[1], np.uint8, width * rows) if rows else np.empty(0, np.uint8)
    if narrow and pa.types.is_decimal128(array.type):
        for digits, name, type in _NARROW:
            if array.type.precision <= digits:
                # The low half: such a number fits in it, and what is null may be anything.
                words, kind = words.view(np.int64)[::2].astype(type), f"{name}:{array.type.scale}"
                break
    return Column(kind, rows, device.upload(words) if rows else device.empty(0), mask, nulls)


def _ends(array: pa.Array) -> AnyArray:
    """Offsets of an array of bytes or lists, int32."""
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1) if len(array) else np.zeros(1, np.int32)


def _mask(device: Runtime, array: pa.Array) -> Memory:
    """Validity in words of 32 rows."""
    bits = np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    words = np.full(-(-len(array) // 32) * 4, 0xFF, np.uint8)
    words[: len(bits)] = bits
    return device.upload(words)
