"""Types of the parameters of public functions, and errors for unknown keywords."""

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from functools import wraps
from inspect import Parameter, signature
from types import FunctionType
from typing import Annotated, Any, BinaryIO, Literal, NamedTuple, ParamSpec, Protocol, TypedDict, TypeVar, cast, get_args
from warnings import warn

from kolumn.core.errors import UnknownOptionError, unknown

Path = str | os.PathLike[str]


class Buffer(Protocol):
    """Python's buffer protocol: bytes, bytearray, memoryview, mmap, pyarrow.Buffer, arrays of bytes."""

    def __buffer__(self, flags: int, /) -> memoryview: ...


Source = Path | Iterable[Path] | Buffer | BinaryIO
"""Segments: a file, a ``topic-partition`` directory, a log directory, a glob, a URL, or several of those; or one segment in memory."""
Columns = str | Iterable[str]
Time = int | datetime | str  # milliseconds since 1970, a datetime, or text: ISO 8601, or what `kolumn.core.moments` knows; UTC by default
Duration = int | timedelta | str  # milliseconds, a timedelta, or text such as '7d'
Progress = Callable[[int], None]
Keys = Mapping[str, Path]  # files of private keys by the names of the keys

# The allowed values, which `kolumn.options` checks.
Format = Literal["kafka", "enriched", "kip98-draft", "v3-compact", "kip87", "redpanda"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
IsolationLevel = Literal["read_uncommitted", "read_committed"]
OpenTransactions = Literal["stop", "skip", "include"]
Errors = Literal["raise", "skip"]
Replicas = Literal["raise", "first", "merge"]
Backend = Literal["auto", "cpu", "gpu"]
Binary = Literal["contiguous", "view"]
Payload = Literal["binary", "string"]
PayloadFormat = Literal["avro", "protobuf", "json", "csv", "fixed", "registry"]
WrittenFormat = Literal["avro", "protobuf", "json"]
PayloadSchema = object  # types of the fields by their names, an Arrow schema, or a schema of Avro or Protobuf
PayloadSchemas = object  # where writers' schemas come from: a path, a folder, a URL, a mapping or a callable
PayloadAs = Literal["struct", "columns"]
PayloadErrors = Literal["null-field", "keep", "raise"]
PayloadUnit = Literal["s", "ms", "us", "ns"]
PayloadUnions = Literal["types", "members"]
PayloadUuids = Literal["stored", "arrow"]
PayloadEnvelope = Literal["debezium", "connect", "cloudevents", "auto"]
PayloadSubject = Literal["topic", "record", "topic-record"]
Decode = Literal["internal"]
Compression = Literal["zstd", "snappy", "gzip", "lz4", "brotli", "none"]
ROW_GROUP_ROWS = 128 << 10  # records of a row group in Parquet files, unless a call says otherwise


class ChoiceOptions(TypedDict, total=False):
    """Which records are read, and which columns of them: each option with its type, its default, and what it means."""

    columns: Annotated[
        Columns | None, None, "Record columns (`kolumn.schema.RECORD_COLUMNS`), in order; by default those of Spark's source."
    ]
    include_headers: Annotated[bool, False, "Return record headers too."]
    include_control: Annotated[bool, False, "Return records of control batches too."]
    start_offset: Annotated[int | None, None, "First offset."]
    end_offset: Annotated[int | None, None, "Offset to stop before."]
    start_timestamp: Annotated[
        Time | None,
        None,
        "First timestamp: 2026-01-31T12:00 (UTC unless it has a zone), 7d or 2h (ago), yesterday, last-tuesday, or ms since 1970.",
    ]
    end_timestamp: Annotated[Time | None, None, "Timestamp to stop before, likewise: yesterday is its midnight."]
    isolation_level: Annotated[
        IsolationLevel, "read_uncommitted", "'read_committed' leaves out aborted transactions, and all from the first open one on."
    ]
    open_transactions: Annotated[
        OpenTransactions,
        "stop",
        "With read_committed: 'stop' at the first open transaction, 'skip' the records of open ones and read on, or 'include' them.",
    ]
    include_snapshots: Annotated[bool, False, "Read KRaft snapshots beside the log too."]
    include_deleted_records: Annotated[
        bool | None,
        None,
        "Return records below the log start offset (DeleteRecords), which no consumer gets. By default those of a folder, not of a tier.",
    ]
    include_deleted_segments: Annotated[
        bool, False, "Return records too that are left only in segments which a broker renamed to delete them (.log.deleted)."
    ]
    binary: Annotated[Binary, "contiguous", "'view': Arrow binary_view columns that point into the segment's bytes."]
    # Who decodes.
    backend: Annotated[Backend, "auto", "'cpu' or 'gpu'; 'auto' is KOLUMN_BACKEND, or the CPU."]
    threads: Annotated[int | None, None, "Chunks that are decoded at a time; by default the cores that this process may use."]
    trusted: Annotated[
        bool, False, "On a GPU, let nvCOMP decompress; crafted bytes can make it write anywhere. By default the CPU decompresses."
    ]


class WholeOptions(TypedDict, total=False):
    """How segments are read, by functions that rewrite or count whole ones too."""

    # Damage and copies.
    errors: Annotated[Errors, "raise", "'raise' stops at the first damage, 'skip' continues after it."]
    replicas: Annotated[
        Replicas,
        "raise",
        "If directories of one partition have the same offsets: 'raise' an error, read only the 'first', or 'merge' them, each offset "
        "once, and fill damage from the others.",
    ]
    check_crcs: Annotated[bool, True, "Compare checksums before a batch is parsed."]
    start_delta: Annotated[
        int | None, None, "For a log of Redpanda that begins after raw offset 0: how far raw offsets are above consumer offsets there."
    ]
    # Limits on memory.
    chunk_bytes: Annotated[int | None, None, "Bytes of a segment that are decoded at a time, roughly; by default 16 MiB, on a GPU 64 MiB."]
    memory_bytes: Annotated[
        int | None, None, "Decompressed bytes of all chunks in progress; by default 8 times chunk_bytes for each thread."
    ]
    max_batch_bytes: Annotated[int, 2**31 - 1, "Largest decompressed size of one batch; by default 2 GiB."]
    max_ratio: Annotated[float, 1032.0, "Largest ratio of decompressed to compressed size of a batch above 64 MiB; by default 1032."]
    # The source.
    topic: Annotated[str | None, None, "Topic, instead of the one in the directory's name."]
    partition: Annotated[int | None, None, "Partition, instead of the one in the directory's name."]
    on_progress: Annotated[Progress | None, None, "Called with the bytes that were read since the last call, from any thread."]


class PayloadOptions(TypedDict, total=False):
    """What is in values and keys. An option for keys without a default of its own has the default and the meaning of that for values."""

    value_format: Annotated[
        PayloadFormat | None, None, "What values are: avro, protobuf, json, csv, fixed, or registry (by the schemas of the topic)."
    ]
    key_format: PayloadFormat | None
    value_schema: Annotated[PayloadSchema, None, "Types of the fields by their names, an Arrow schema, or a schema of Avro or Protobuf."]
    key_schema: PayloadSchema
    value_schemas: Annotated[PayloadSchemas, None, "Source of the writer schemas: a topic _schemas, a folder, or a registry's URL."]
    key_schemas: PayloadSchemas
    value_message: Annotated[str | None, None, "Name of the Protobuf message, if neither its file nor the first values say it."]
    key_message: str | None
    value_columns: Annotated[Columns | None, None, "Fields to decode; a dotted name is a field of a struct; by default all."]
    key_columns: Columns | None
    value_as: Annotated[PayloadAs | None, None, "'struct', one column, or 'columns', one for each field."]
    key_as: PayloadAs | None
    value_framing: Annotated[str, "auto", "What precedes values; by default it is recognised."]
    key_framing: str
    value_errors: Annotated[
        PayloadErrors,
        "null-field",
        "If a field cannot be decoded: make it null ('null-field'), make the whole value null ('keep'), or 'raise' an error.",
    ]
    key_errors: PayloadErrors
    value_separator: Annotated[str, ",", "Separator between the fields of csv."]
    key_separator: str
    value_skip: Annotated[int, 0, "Bytes to skip in front of each value, before a framing is recognised."]
    key_skip: int
    value_sample: Annotated[int, 1000, "Number of values of each topic from which a JSON type is inferred."]
    key_sample: int
    value_max_depth: Annotated[
        int, 1, "How often a recursive type of Avro, Protobuf or JSON Schema is nested before the rest is a field of JSON text."
    ]
    key_max_depth: int
    value_time_unit: Annotated[
        PayloadUnit | None, None, "Unit of all timestamps in values; further digits are cut off. By default the unit of their types."
    ]
    key_time_unit: PayloadUnit | None
    value_unions: Annotated[
        PayloadUnions, "types", "Names of the fields of an Avro union: their 'types', or 'members' (member0, member1, …), as in Spark."
    ]
    key_unions: PayloadUnions
    value_uuids: Annotated[
        PayloadUuids, "stored", "UUIDs of Avro as they are 'stored' (text or 16 bytes), or as 'arrow', the type arrow.uuid."
    ]
    key_uuids: PayloadUuids
    value_envelope: Annotated[
        PayloadEnvelope | None,
        None,
        "Envelope to remove from values: 'debezium', 'connect' (schema and payload), 'cloudevents', or 'auto': either of the first two.",
    ]
    key_envelope: PayloadEnvelope | None
    value_subject: Annotated[
        PayloadSubject, "topic", "Subject of values by Confluent's strategies: that of the 'topic', the 'record', or 'topic-record'."
    ]
    key_subject: PayloadSubject
    value_as_of: Annotated[
        Time | None, None, "The time as of which a topic _schemas is read: 2026-01-31T12:00, 7d (ago), yesterday, or ms since 1970."
    ]
    key_as_of: Time | None
    decode: Annotated[Decode | None, None, "'internal': keys and values of internal topics and control records, as structs."]


class ChosenOptions(WholeOptions, PayloadOptions, total=False):
    """How whole segments are read, by functions that choose some of their records by typed keys and values."""


class RecordOptions(ChoiceOptions, WholeOptions, PayloadOptions, total=False):
    """Of a read by a function that has another option ``format``."""

    private_keys: Annotated[Keys | None, None, "Private RSA keys of an encrypted tier: files, PEM or DER, by the names of the keys."]


class ReadOptions(RecordOptions, total=False):
    """The options of a read: the one list from which functions, commands and Spark take names, types, defaults and descriptions."""

    format: Annotated[Format, "kafka", "'kafka', 'redpanda', or a draft: 'enriched', 'kip98-draft', 'v3-compact', 'kip87'."]


class Option(NamedTuple):
    type: Any
    default: Any
    meaning: str


def options_in(some: type) -> dict[str, Option]:
    """The options of one of the lists above."""
    options: dict[str, Option] = {}
    for name, type in some.__annotations__.items():
        if hasattr(type, "__metadata__"):
            options[name] = Option(type.__origin__, *type.__metadata__)
        else:
            like = options[name.replace("key", "value", 1)]
            options[name] = like._replace(meaning=like.meaning.replace("value", "key"))
    return options


OPTIONS = options_in(ReadOptions)
DEFAULTS = {name: option.default for name, option in OPTIONS.items()}
PAYLOAD_DEFAULTS = {name: DEFAULTS[name] for name in PayloadOptions.__annotations__}


def refused(names: Iterable[str], why: str) -> dict[str, str]:
    """For `known_keywords`: options that would have no effect, with the text of their error."""
    return {name: f"option {name!r} has no effect here: {why}" for name in names}


class ArrowStream(Protocol):
    """Arrow data of any library."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The data by the Arrow PyCapsule interface."""


_Parameters = ParamSpec("_Parameters")
_Result = TypeVar("_Result")


RENAMED = {"keys": "private_keys"}
"""Options of version 0.1 by their names then, which warn."""


_FILTER = (
    "options choose records by offset and timestamp. kolumn.scan_polars(source).filter(...) reads what a condition needs, and "
    "kolumn.history(source, keys=...) finds a key"
)
MEANT = {
    **dict.fromkeys(("since", "from_timestamp", "start_time", "starttime"), "start_timestamp"),
    **dict.fromkeys(("until", "to_timestamp", "end_time", "endtime"), "end_timestamp"),
    **dict.fromkeys(("offset", "from_offset", "start"), "start_offset"),
    **dict.fromkeys(("to_offset", "end", "stop"), "end_offset"),
    **dict.fromkeys(("n", "n_rows", "nrows", "max_records", "max_rows", "head"), "limit"),
    **dict.fromkeys(("schema", "avro_schema", "json_schema", "proto"), "value_schema"),
    **dict.fromkeys(("registry", "schema_registry", "registry_url", "schemas"), "value_schemas"),
    **dict.fromkeys(("message", "message_type"), "value_message"),
    **dict.fromkeys(("fields", "select"), "columns"),
    **dict.fromkeys(("on_error", "on_errors", "ignore_errors", "skip_errors"), "errors"),
    **dict.fromkeys(("crc", "verify_crc", "check_crc", "verify"), "check_crcs"),
    **dict.fromkeys(("parallelism", "workers", "num_threads", "n_threads"), "threads"),
    **dict.fromkeys(("headers", "with_headers"), "include_headers"),
    **dict.fromkeys(("committed", "isolation", "read_committed"), "isolation_level"),
    **dict.fromkeys(("memory", "memory_limit"), "memory_bytes"),
    **dict.fromkeys(("progress", "callback"), "on_progress"),
    **dict.fromkeys(("retention", "max_age"), "retention_ms"),
}
"""What other tools call an option, and this one does."""


def _unknown(name: str, known: list[str], function: str) -> str:
    """Message for an option that a function does not have."""
    if name in ("filter", "filters", "where", "predicate", "condition", "query"):
        return f"unknown option {name!r}: {_FILTER}"
    near = [MEANT[name]] if MEANT.get(name) in known else get_close_matches(name, known, 1)
    if near:
        return f"unknown option {name!r}, did you mean {near[0]!r}? The docstring of {function} lists all"
    return unknown("option", name, known)


def warn_renamed(old: str, new: str, calls: int = 3) -> None:
    """Warn of a name that goes in the next version; ``calls`` as ``stacklevel`` of `warnings.warn`, from the caller on."""
    warn(f"{old} is called {new} now", DeprecationWarning, stacklevel=calls)


def known_keywords(refused: Mapping[str, str] | None = None) -> Callable[[Callable[_Parameters, _Result]], Callable[_Parameters, _Result]]:
    """Decorator of public functions: a keyword that does not exist is an `UnknownOptionError` that names the nearest one.

    Of a function that takes ``**options`` of one of the lists above, the signature has them one by one, for `inspect` and editors, and
    a paragraph ``**options`` in its docstring is replaced by their descriptions. ``refused`` are keywords of similar functions that this
    function does not have, each with the text of its error.
    """

    def decorate(function: Callable[_Parameters, _Result]) -> Callable[_Parameters, _Result]:
        own = signature(function)
        named = {name: item for name, item in own.parameters.items() if item.kind is not Parameter.VAR_KEYWORD}
        lists = [get_args(item.annotation)[0] for item in own.parameters.values() if item.kind is Parameter.VAR_KEYWORD]
        known = {*named, *(refused or {})}
        listed = {name: option for some in lists for name, option in options_in(some).items() if name not in known}
        keywords = [name for name, item in named.items() if item.kind is Parameter.KEYWORD_ONLY]
        options, accepted = [*keywords, *listed] or list(named), {*named, *listed}

        @wraps(function)
        def checked(*args: _Parameters.args, **given: _Parameters.kwargs) -> _Result:
            others = [] if accepted.issuperset(given) else [name for name in given if name not in accepted]
            for name in others:
                if RENAMED.get(name) in accepted - given.keys():
                    warn_renamed(f"option {name!r}", repr(RENAMED[name]))
                    given[RENAMED[name]] = given.pop(name)
                else:
                    raise UnknownOptionError((refused or {}).get(name) or _unknown(name, options, function.__name__))
            return function(*args, **given)

        if listed:
            with_defaults = ((name, option.default, option.type) for name, option in listed.items())
            added = [Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=type) for name, default, type in with_defaults]
            cast(FunctionType, checked).__dict__["__signature__"] = own.replace(parameters=[*named.values(), *added])
            checked.__doc__ = (function.__doc__ or "").replace("    **options\n", _described(listed))
        return checked

    return decorate


def _described(listed: Mapping[str, Option]) -> str:
    """Options as NumPy's docstrings have them, those for keys beside those for values."""
    texts = ""
    for name, option in listed.items():
        if not name.startswith("key_"):
            names = f"{name}, {name.replace('value', 'key')}" if name.startswith("value_") else name
            default = "optional" if option.default is None else f"default {option.default!r}"
            texts += f"    {names} : {default}\n        {option.meaning}\n"
    return texts
