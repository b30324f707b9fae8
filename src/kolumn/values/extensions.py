"""Arrow's extension types, such as `arrow.json`, at any depth: what they are stored in, and columns of them. pyarrow makes no nested column
of an extension type from Python's values, and does not cast to one.
"""

from collections.abc import Sequence

import pyarrow as pa

JSON_TEXT = pa.json_(pa.string())  # Text of any JSON value, as it stands in the payload: Arrow's extension type ``arrow.json``.


def stored_type(type: pa.DataType) -> pa.DataType:
    """The type in which Arrow stores an extension type; any other type itself."""
    return type.storage_type if isinstance(type, pa.BaseExtensionType) else type


def storage_of(type: pa.DataType, labels: bool = True) -> pa.DataType:
    """A type with all in it as it is stored, without ``labels`` dictionaries as what they name; the same object if there is none in it."""
    if isinstance(type, pa.BaseExtensionType):
        return type.storage_type
    if pa.types.is_dictionary(type) and not labels:
        return type.value_type
    parts = _parts(type)
    stored = [part.with_type(storage_of(part.type, labels)) for part in parts]
    if stored == parts:
        return type
    if pa.types.is_struct(type):
        return pa.struct(stored)
    return pa.map_(*stored) if pa.types.is_map(type) else pa.list_(stored[0])


def in_type(array: pa.Array, type: pa.DataType) -> pa.Array:
    """A column of type `storage_of` another one in that type, or one of that type as it is stored; nothing is copied."""
    if array.type == type:
        return array
    if isinstance(type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type, array)
    if isinstance(array.type, pa.BaseExtensionType):
        return array.storage
    if pa.types.is_dictionary(type):
        return array.dictionary_encode()
    if pa.types.is_struct(type):
        children = [in_type(array.field(number), part.type) for number, part in enumerate(type)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(type), mask=mask)
    mask, ends = array.buffers()[:2]
    if pa.types.is_map(type):
        entries = [in_type(array.keys, type.key_type), in_type(array.items, type.item_type)]
        inner = pa.StructArray.from_arrays(entries, fields=[type.key_field, type.item_field])
    else:
        inner = in_type(array.values, type.value_type)
    return pa.Array.from_buffers(type, len(array), [mask, ends], array.null_count, array.offset, children=[inner])


def column_of(values: Sequence[object], type: pa.DataType) -> pa.Array:
    """A column of Python's values: `pyarrow.array` for types with extension types in them. Dictionaries are encoded afterwards: of those in
    a struct that is null it makes numbers without a label.
    """
    return in_type(pa.array(values, storage_of(type, labels=False)), type)


def _parts(type: pa.DataType) -> list[pa.Field]:
    if pa.types.is_struct(type):
        return list(type)
    if pa.types.is_map(type):
        return [type.key_field, type.item_field]
    return [type.value_field] if pa.types.is_list(type) else []
