"""What all kernels get of a run of batches: its table, and where the records of each batch lie."""

from typing import Any, NamedTuple

from kolumn.formats import table
from kolumn.machine_code.deferred import register_jitable
from kolumn.machine_code.words import load64

_WIDTH = table.WIDTH


class Batches(NamedTuple):
    """A run of batches on the device; addresses of int64 columns with a row for each batch.

    The arguments of `count`, `hop` and `fields` begin with these.

    Attributes
    ----------
    rows : int
        The batch table, of shape (n, `table.WIDTH`).
    payload, size : int
        Address and bytes of the records or messages, inflated.
    first : int
        n + 1 row numbers: where each batch's rows begin.
    base : int
        What is added to inner offsets.
    bad : int
        int32, initially zeros: 1 if something in the batch is wrong. The CPU finds out which record it is, and why.
    format : int
        Of `layouts`.
    """

    rows: int
    payload: int
    size: int
    first: int
    base: int
    bad: int
    format: int


@register_jitable
def field(a: Any, b: int, column: int) -> int:
    """A field of a row of the batch table: ``a`` is a kernel's arguments, of which ``rows`` is its address."""
    return load64(a.rows + 8 * (_WIDTH * b + column))
