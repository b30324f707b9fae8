"""A split as tables on the executor's GPU, in the schema that Spark asked for.

What kernels decode stays there. What only the host can decode (JSON, CSV, reads that raise an error for a value, types that are others in
Spark) is decoded by the CPU and copied there, so that a query has one plan whatever is in a topic.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kolumn.core.errors import KolumnError
from kolumn.damage.findings import OnDamage, Tally
from kolumn.options import Options
from kolumn.readers.gpu import resident_options
from kolumn.source.segments import Range
from kolumn.spark_plugin.connector.work import Work
from kolumn.spark_plugin.read.schema import spark_type
from kolumn.spark_plugin.read.splits import Split
from kolumn.spark_plugin.read.stream import check_planned
from kolumn.spark_plugin.read.task import read_task
from kolumn.values.narrowing import Narrowed

if TYPE_CHECKING:
    from kolumn.kernels.columns.table import Column, DeviceTable
    from kolumn.kernels.machine.executor import ExecutorDevice

MOST = 2**31 - 1
"""Rows of a column, and the bytes that its offsets count."""
_CHUNK = 128 << 20
"""Bytes of a segment at a time: a split, mostly, is read before the task takes its turn on the GPU."""
_FEW_CHUNK = 4 << 20
"""The same where a query wants some rows alone."""


def tables(
    device: "ExecutorDevice",
    split: Split,
    work: Work,
    schema: pa.Schema,
    damage: OnDamage,
    tally: Callable[[Range, Tally], None],
) -> "Iterator[DeviceTable]":
    """Decode a split: at least one table, with columns as ``schema`` has them; ``damage`` and ``tally`` as `read_task`.

    Raises `KolumnError` if a column would have more than cuDF's lists can hold, and as `kolumn.read`.
    """
    from kolumn.kernels.machine.device import using

    if work.live:
        check_planned(split)
    rows, sizes, narrowed = 0, dict[tuple[Any, ...], int](), Narrowed(schema)
    parts = ((ranges, _how(ranges, options, work)) for ranges, options in split.parts(work.options.decode))
    with using(device):
        found: Any
        for found in read_task(parts, damage, tally):
            is_on_host = isinstance(found, pa.RecordBatch)
            table = _uploaded(device, narrowed.batch(found)) if is_on_host else _in_schema(found, schema)
            _add(sizes, table)
            rows += table.num_rows
            yield table
            # The JVM has it.
            del found, table
            if 0 <= work.limit <= rows:
                narrowed.say()
                return
            if is_on_host:
                device.rest()
        if not rows:
            yield _uploaded(device, pa.RecordBatch.from_pylist([], schema))
    narrowed.say()


def _how(ranges: Sequence[Range], options: Options, work: Work) -> Options:
    """How ranges are decoded: by kernels, if these make all columns as Spark has them, or else by the CPU."""
    typed = all(_is_same(one.type) for one in options.typed)
    resident = resident_options(options, work.options.payload, ranges) if typed else None
    if resident is None:
        return replace(options, backend="cpu")
    return replace(resident, threads=1, chunk_bytes=_CHUNK if work.limit < 0 else _FEW_CHUNK)


def _in_schema(table: "DeviceTable", schema: pa.Schema) -> "DeviceTable":
    own = dict(zip(table.names, table.columns, strict=True))
    return replace(table, names=tuple(schema.names), columns=[_shaped(own[field.name], field.type) for field in schema])


def _uploaded(device: "ExecutorDevice", batch: pa.RecordBatch) -> "DeviceTable":
    from kolumn.kernels.columns.table import DeviceTable
    from kolumn.kernels.values.uploaded import uploaded

    columns = [uploaded(device, column, narrow=True) for column in batch.columns]
    return DeviceTable(tuple(batch.schema.names), columns, batch.num_rows)


def _is_same(type_: pa.DataType) -> bool:
    """Whether the kernels' columns of a type are those of Spark. Decimals of a few digits are narrower in RAPIDS; names of enums and bytes
    of one length are not empty where the kernels have null, as cuDF demands."""
    if pa.types.is_struct(type_):
        return all(_is_same(field.type) for field in type_)
    if pa.types.is_map(type_):
        return _is_same(type_.key_type) and _is_same(type_.item_type)
    if pa.types.is_list(type_):
        return _is_same(type_.value_type)
    return not pa.types.is_decimal(type_) and spark_type(type_) == type_


def _shaped(column: "Column", wanted: pa.DataType) -> "Column":
    """A column with the members that Spark asked for, and its bytes under the type that it expects; nothing is copied."""
    if pa.types.is_struct(wanted):
        # Null structs have null members in cuDF. Those with nulls of their own are null there already, text and lists are empty.
        mask, nulls = (column.bitmap, column.nulls) if column.nulls else (None, 0)
        members = [replace(one, bitmap=mask, nulls=nulls) if one.bitmap is None else one for one in column.children]
        own = dict(zip(column.fields, members, strict=True))
        names = tuple(field.name for field in wanted)
        return replace(column, children=tuple(_shaped(own[field.name], field.type) for field in wanted), fields=names)
    if pa.types.is_list(wanted):
        ends, elements = column.children
        return replace(column, children=(ends, _shaped(elements, wanted.value_type)))
    if pa.types.is_binary(wanted) and column.kind == "string":
        (ends,), data = column.children, column.data
        assert ends.data is not None
        assert data is not None
        from kolumn.kernels.columns.table import payload_column

        return payload_column("bytes", column.rows, ends.data, data, data.size, column.bitmap, column.nulls)
    return column


def _add(sizes: dict[tuple[Any, ...], int], table: "DeviceTable") -> None:
    """Count what the columns of a split hold: all tables of it become one list."""
    for name, column in zip(table.names, table.columns, strict=True):
        for path, size in _sizes(column):
            held = sizes[name, *path] = sizes.get((name, *path), 0) + size
            if held > MOST:
                raise KolumnError(
                    f"column {name!r} of this split would have more than {MOST} rows or bytes, the most that cuDF's lists can hold: "
                    "set the option splitBytes to a quarter of what it is, or leave the column out"
                )


def _sizes(column: "Column") -> Iterator[tuple[tuple[int, ...], int]]:
    yield (), column.data.size if column.kind == "string" and column.data is not None else column.rows
    for number, child in enumerate(column.children):
        for path, size in _sizes(child):
            yield (number, *path), size


def described(table: "DeviceTable") -> bytes:
    """A table as numbers: int32 rows and columns, then each column with what is in it:

        int32 length, kind | int64 rows, nulls | data: int64 address, bytes | validity: int64 address, bytes | int32 children, the children

    An address is 0 where there is nothing.
    """
    return struct.pack(">ii", table.num_rows, len(table.columns)) + b"".join(map(_described, table.columns))


def _described(column: "Column") -> bytes:
    kind = column.kind.encode()
    places = [place for one in (column.data, column.bitmap) for place in ((one.address, one.size) if one is not None else (0, 0))]
    text = struct.pack(f">i{len(kind)}sqq4qi", len(kind), kind, column.rows, column.nulls, *places, len(column.children))
    return text + b"".join(map(_described, column.children))
