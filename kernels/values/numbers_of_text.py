"""Floating point numbers out of text, by cuDF."""

from typing import Any

from kolumn.kernels.columns.assemble import to_column, type_ids
from kolumn.kernels.columns.table import Column


def to_floats(text: Column, kind: str, flags: Any) -> tuple[Any, Any]:
    """pylibcudf columns: the numbers, null where the text is null or not a number, and the flags without those rows.

    Parameters
    ----------
    text : Column
    kind : str
        "float32" or "float64".
    flags : Column or pylibcudf.Column
    """
    import pylibcudf as plc

    logical = plc.DataType(plc.TypeId.BOOL8)
    given, so_far = to_column(text), to_column(flags) if isinstance(flags, Column) else flags
    fits = plc.strings.convert.convert_floats.is_float(given)
    numbers = plc.strings.convert.convert_floats.to_floats(given, plc.DataType(type_ids()[kind]))
    mask, nulls = plc.transform.bools_to_mask(fits)
    # Null text makes a null flag, and such a row is not marked.
    no_number = plc.unary.unary_operation(fits, plc.unary.UnaryOperator.NOT)
    wrong = plc.replace.replace_nulls(no_number, plc.Scalar.from_py(False))
    right = plc.unary.unary_operation(wrong, plc.unary.UnaryOperator.NOT)
    both = plc.binaryop.binary_operation(so_far, right, plc.binaryop.BinaryOperator.LOGICAL_AND, logical)
    return numbers.with_mask(mask, nulls), both
