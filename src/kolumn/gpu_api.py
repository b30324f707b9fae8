"""`read_pylibcudf` and `read_cudf`: records as columns on the GPU."""

from typing import Any

from kolumn.api import live_segments, read
from kolumn.backend import RESIDENT, require
from kolumn.decode.device.resident import ResidentOptions
from kolumn.decode.pipeline import scan_ranges
from kolumn.errors import ArgumentError
from kolumn.log.transactions import with_transactions
from kolumn.options import Options
from kolumn.replicas.ranges import log_ranges
from kolumn.transactions.states import matter


def read_pylibcudf(
    source: Any,
    *,
    payload: str = "binary",
    value_format: str | None = None,
    value_schema: Any = None,
    value_skip: int = 0,
    value_separator: str = ",",
    **options: Any,
) -> tuple[Any, list[str]]:
    """Read the records of Kafka log segments into columns on the GPU.

    Parameters
    ----------
    source
        As of `kolumn.scan`.
    payload : str
        "binary": keys, values and headers' values as lists of uint8, cuDF's only type for bytes. "string": as strings, whose bytes are
        not looked at: that they are text is the caller's word.
    value_format : str, optional
        Parse values on the GPU. In place of ``value`` come the columns of ``value_schema``, and ``valueValid``: false where a value is
        not as the schema says; then its fields are null.
        "json": objects, by cuDF's reader; "csv": separated fields (RFC 4180); "avro": the binary encoding of a record; "fixed": numbers
        at fixed places. A number of "csv" that is none leaves the other fields of its value as they are.
    value_schema
        Of "json" and "csv" a mapping of names to types ("int64", "float64", "string", "bool", …); of "fixed" one of names to NumPy dtypes,
        in order and with their byte order (">i8"); of "avro" the schema of a record of primitive types and unions of one with null, as
        text or dict.
    value_skip : int
        Bytes in front of each value of "avro": 5 in the wire format of schema registries.
    value_separator : str
        Between the fields of "csv".
    **options
        As of `kolumn.scan`; ``backend`` and ``binary`` have no effect.

    Returns
    -------
    table : pylibcudf.Table
        Device memory; columns as of `kolumn.schema.RECORD_COLUMNS`, timestamps without a time zone. Of "kip98-draft", what became of
        transactions is settled on the host: the columns are copied there and back.
    names : list of str

    Raises
    ------
    ArgumentError
        An option that makes no sense, or a source without segments.
    MissingError
        There is no GPU, or a package is missing.
    CorruptBatchError, FormatError, LimitError
        As `kolumn.scan`.
    """
    if payload not in ("binary", "string"):
        raise ArgumentError(f"payload={payload!r}: expected binary or string")
    return _read(source, payload, _values(value_format, value_schema, value_skip, value_separator), {**options, "backend": "gpu"})


def _read(source: Any, payload: str, values: Any, options: dict[str, Any]) -> tuple[Any, list[str]]:
    chosen = Options.of(**options)
    resident = ResidentOptions(**{**vars(chosen), "backend": RESIDENT}, payload=payload, values=values)
    names = resident.names
    if matter(chosen) and chosen.format == "kip98-draft":
        if values is not None:
            raise ArgumentError("value_format: transactions of kip98-draft are settled on the host; parse the values afterwards")
        return _by_host(source, payload, options)
    require(chosen.backend)
    ranges = with_transactions(log_ranges(live_segments(source, chosen), chosen), chosen)
    tables = list(scan_ranges(ranges, resident))
    from kolumn.kernels.columns.assemble import concatenate

    return concatenate(tables, resident), names


def _values(format: str | None, schema: Any, skip: int, separator: str) -> Any:
    if format is None:
        if schema is not None or skip or separator != ",":
            raise ArgumentError("value_schema, value_skip and value_separator go with value_format")
        return None
    from kolumn.kernels.values.schema import Values

    return Values.of(format, schema, skip, separator)


def read_cudf(source: Any, **options: Any) -> Any:
    """The same as a cudf.DataFrame; parameters and errors as `read_pylibcudf`."""
    from kolumn.kernels.columns.frame import from_pylibcudf

    return from_pylibcudf(*read_pylibcudf(source, **options))


def _by_host(source: Any, payload: str, options: dict[str, Any]) -> tuple[Any, list[str]]:
    from kolumn.kernels.columns.assemble import from_arrow

    table = read(source, **{**options, "binary": "contiguous"})
    return from_arrow(table, payload), table.column_names
