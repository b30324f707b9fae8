"""What a scan decodes: the columns that Spark asked for, and their fields where validity does not depend on which."""

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, StructType

from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.schema import spark_schema
from kolumn.values.columns.typed import Typed

_WHOLE = ("avro", "protobuf", "fixed")
"""Formats whose values are valid or not as a whole. A JSON value is valid if its wanted members are: the optimizer must not decide that."""


def only_asked(options: LoadOptions, asked: StructType) -> LoadOptions:
    """The options of a scan with the record columns that it needs, and with the fields of typed ones.

    Parameters
    ----------
    options : LoadOptions
        With the types of its typed columns.
    asked : StructType
        The columns of the scan; with Spark's nested pruning a struct has some of its fields.
    """
    names, columns = set(asked.fieldNames()), options.decode.columns
    # Fields of a value may be columns of the scan.
    needed = options.only(tuple(one for one in columns if set(options.only((one,)).decode.schema.names) & names))
    whole = spark_schema(needed.decode.schema, needed.payload)
    return replace(needed, decode=replace(needed.decode, typed=tuple(_only(one, whole, asked) for one in needed.decode.typed)))


def _only(one: Typed, whole: StructType, asked: StructType) -> Typed:
    if one.kind not in _WHOLE or not pa.types.is_struct(one.type):
        return one
    kind = cast(pa.StructType, one.type)
    if one.flat:
        there, wanted = (StructType([field for field in some if kind.get_field_index(field.name) >= 0]) for some in (whole, asked))
    elif one.column in asked.fieldNames():
        there, wanted = (cast(StructType, some[one.column].dataType) for some in (whole, asked))
    else:
        return one
    names = tuple(_names(kind, wanted))
    # A dot in a name would be taken for a field of a struct.
    if not names or wanted == there or any("." in part for name in names for part in name):
        return one
    return replace(one, columns=tuple(".".join(name) for name in names))


def _names(kind: pa.DataType, wanted: DataType) -> Iterator[tuple[str, ...]]:
    """Paths of the fields that are wanted."""
    for field in cast(StructType, wanted):
        own, inner = kind.field(field.name).type, field.dataType
        if pa.types.is_list(own) and isinstance(inner, ArrayType):
            own, inner = own.value_type, inner.elementType
        if pa.types.is_struct(own) and isinstance(inner, StructType) and inner.fields:
            yield from ((field.name, *rest) for rest in _names(own, inner))
        else:
            yield (field.name,)
