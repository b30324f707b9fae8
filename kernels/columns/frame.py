"""Arrow record batches to cuDF frames and back. cuDF has no binary type: bytes go as strings, the same buffers under another name."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kolumn.errors import MissingPackageError
from kolumn.kernels.columns.assemble import in_known_types
from kolumn.kernels.columns.child_names import ChildNames
from kolumn.kernels.machine.device import ADVICE

if TYPE_CHECKING:
    import cudf
    import pylibcudf


def require_cudf() -> None:
    """Make sure that cuDF is there, before anything is read for it.

    Raises
    ------
    MissingError
        It is not.
    """
    try:
        import_module("cudf")
    except ImportError as error:
        raise MissingPackageError(
            f"a cudf.DataFrame was asked for: {error}; {ADVICE}. cuDF is not part of it: pip install cudf-cu13; "
            "scan_pylibcudf and read_pylibcudf do without it"
        ) from error


def to_cudf(batch: pa.RecordBatch) -> Any:
    """A cudf.DataFrame of a record batch; copies to the device.

    Keys, values and headers' values are strings that hold their bytes, UTF-8 or not; moments have no time zone.

    Raises
    ------
    MissingError
        cuDF is not there.
    """
    require_cudf()
    import cudf

    return cudf.DataFrame.from_arrow(in_known_types(pa.table(batch), "string"))


def from_cudf(frame: "cudf.DataFrame") -> list[pa.RecordBatch]:
    """Record batches of a cudf.DataFrame, without its index; copies to the host."""
    table = frame.to_arrow(preserve_index=False)
    return list(table.to_batches()) or [pa.RecordBatch.from_pylist([], schema=table.schema)]


def from_pylibcudf(table: "pylibcudf.Table", names: list[str], children: list[ChildNames]) -> Any:
    """A cudf.DataFrame over the columns of a pylibcudf.Table; copies nothing, but dates, which cuDF has as moments.

    Raises
    ------
    MissingError
        cuDF is not there.
    """
    require_cudf()
    import cudf

    return cudf.DataFrame.from_pylibcudf(table, {"columns": names, "child_names": dict(zip(names, children, strict=True))})
