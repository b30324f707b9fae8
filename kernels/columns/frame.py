"""Arrow record batches to cuDF frames and back. cuDF has no binary type: bytes go as strings, the same buffers under another name."""

from typing import Any

import pyarrow as pa

from kolumn.errors import MissingError
from kolumn.kernels.machine.device import ADVICE


def to_cudf(batch: pa.RecordBatch) -> Any:
    """A cudf.DataFrame of a record batch; copies to the device. Keys and values are strings that hold their bytes, UTF-8 or not.

    Raises
    ------
    MissingError
        cuDF is not there.
    """
    try:
        import cudf
    except ImportError as error:
        raise MissingError(f"a cudf.DataFrame was asked for: {error}; {ADVICE}") from error
    columns = [column.view(pa.string()) if pa.types.is_binary(column.type) else column for column in batch.columns]
    return cudf.DataFrame.from_arrow(pa.table(columns, names=batch.schema.names))


def from_cudf(frame: Any) -> list[pa.RecordBatch]:
    """Record batches of a cudf.DataFrame, without its index; copies to the host."""
    table = frame.to_arrow(preserve_index=False)
    return list(table.to_batches()) or [pa.RecordBatch.from_pylist([], schema=table.schema)]


def from_pylibcudf(table: Any, names: list[str]) -> Any:
    """A cudf.DataFrame over the columns of a pylibcudf.Table.

    Raises
    ------
    MissingError
        cuDF is not there.
    """
    try:
        import cudf
    except ImportError as error:
        raise MissingError(f"a cudf.DataFrame was asked for: {error}; read_pylibcudf needs pylibcudf alone, or {ADVICE}") from error
    return cudf.DataFrame.from_pylibcudf(table, {"columns": names})
