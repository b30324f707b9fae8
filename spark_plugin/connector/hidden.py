"""Columns that a query may name though the table does not have them: every record column that the option ``columns`` knows.

A column of the table may have the name of one, as a field of a value. That name then means the column, in any case of its letters.
"""

import pyarrow as pa
from pyspark.sql.types import StructType

from kolumn.core.schema import RECORD_COLUMNS, beside
from kolumn.options import Options
from kolumn.spark_plugin.read.options import LoadOptions


def hidden(decode: Options) -> pa.Schema:
    """These columns, with the types that the option ``columns`` gives them."""
    there = {name.lower() for name in decode.schema.names}
    known = (*RECORD_COLUMNS, *(name for typed in decode.typed for name in beside(typed.column)))
    # A typed column that becomes several has no name of its own.
    flat = {typed.column for typed in decode.typed if typed.flat}
    names = [name for name in known if name.lower() not in there and name not in decode.columns and name not in flat]
    return decode.with_columns(names).schema


def record_columns(decode: Options) -> frozenset[str]:
    """The record columns that conditions and totals may name: another column of the table may have the name of one."""
    return frozenset(decode.columns) | frozenset(hidden(decode).names)


def with_hidden(options: LoadOptions, asked: StructType) -> LoadOptions:
    """The options with those of the columns that a scan asks for, after the table's."""
    names = frozenset(asked.fieldNames())
    return options.only((*options.decode.columns, *(name for name in hidden(options.decode).names if name in names)))
