"""What a call asks for of the values, or of the keys, of its records: checked options, what decodes them, and the stage that turns payloads
of record batches into typed columns, in the thread that made the batch.
"""

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core import keywords
from kolumn.core.arrays import Flags
from kolumn.core.errors import ArgumentError, PayloadError, unknown
from kolumn.core.keywords import PAYLOAD_DEFAULTS, Decode
from kolumn.core.lost import TOLD, WHOLE, LostValues
from kolumn.core.schema import PROBLEMS, RECORD_COLUMNS, beside, record_schema
from kolumn.values.decoder import MOST_NESTED, SCHEMALESS, TYPES, is_deep, only_fields
from kolumn.values.schemas.schema import Kind, Schema, Schemas, UnnamedMessageError, UnreadableSchemasError

# Decoders are imported when one is made: they take as long to import as everything else, and most reads have none.
if TYPE_CHECKING:
    from kolumn.values.avro_bare import BareValues
    from kolumn.values.decoder import Bodies, ValueDecoder
    from kolumn.values.framing import PayloadFramer
    from kolumn.values.internal.messages import InternalDecoder

logger = logging.getLogger("kolumn.values")
CLOUD_EVENTS = "cloudevents"  # The envelope of which a part is in headers.
INTERNAL = "internal"  # The format of keys and values with ``decode="internal"``.
_CHOICES = {
    "format": get_args(keywords.PayloadFormat), "as": get_args(keywords.PayloadAs), "errors": get_args(keywords.PayloadErrors),
    "time_unit": get_args(keywords.PayloadUnit), "unions": get_args(keywords.PayloadUnions),
    "uuids": get_args(keywords.PayloadUuids),
    "envelope": get_args(keywords.PayloadEnvelope), "subject": get_args(keywords.PayloadSubject),
}  # fmt: skip
_REGISTERED = ("avro", "protobuf", "json", "registry")
_OWNERS: dict[str, tuple[str, ...]] = {
    "schemas": _REGISTERED, "message": ("protobuf", "registry"), "separator": ("csv",), "sample": ("json",), "max_depth": _REGISTERED,
    "time_unit": _REGISTERED, "unions": ("avro", "registry"), "uuids": ("avro", "registry"),
    "envelope": _REGISTERED, "subject": _REGISTERED, "as_of": _REGISTERED,
}  # fmt: skip
"""Options that only some formats have."""
_WHERE = ("offset", "segment")  # Columns that the error about a value needs.
_SHOWN = 32  # Bytes of a value in an error.


KINDS: dict[str, Kind] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
"""The kinds of schemas of formats."""


@dataclass(frozen=True)
class Typed:
    """How the payloads of one column, "value" or "key", are decoded: the parameters of `kolumn.scan` without their prefix. With ``flat``
    the fields of a struct are columns of their own. What the decoder is made of, ``reader``, and what opens the writers' schemas, which a
    process calls once, are known after `kolumn.readers.types.with_types`.
    """

    column: str
    format: str
    schema: Any = None
    schemas: Any = None
    message: str | None = None
    columns: tuple[str, ...] | None = None
    framing: str = "auto"
    errors: str = "null-field"
    separator: str = ","
    skip: int = 0
    sample: int = 1000
    max_depth: int = 1
    time_unit: str | None = None
    unions: str = "types"
    uuids: str = "stored"
    envelope: str | None = None
    subject: str = "topic"
    as_of: int | None = None
    flat: bool = False
    reader: Any = None
    open_schemas: Callable[[], Schemas] | None = None

    def __getstate__(self) -> dict[str, object]:
        """Without what is made of the others: a process that gets this one makes its own."""
        return {name: value for name, value in self.__dict__.items() if name in self.__dataclass_fields__}

    @property
    def kind(self) -> str:
        """The format of the values: of "registry" that of the reader's schema."""
        return self.reader.kind.lower() if isinstance(self.reader, Schema) else self.format

    @cached_property
    def decoder(self) -> "ValueDecoder":
        """The decoder of this read, which its threads share. `ArgumentError` if the schema makes no sense, its types are nested too deeply,
        or ``columns`` has names that it does not have.
        """
        try:
            return self._made()
        except (UnreadableSchemasError, UnnamedMessageError):
            raise
        except ArgumentError as error:
            advice = self._advice() if self.envelope is None else ""
            if not advice:
                raise
            raise ArgumentError(f"{error}: {advice}") from None

    def _made(self) -> "ValueDecoder":
        try:
            decoder = self._decoder()
            if not is_deep(decoder.type, lambda type: [type.field(number).type for number in range(type.num_fields)]):
                return decoder
        except RecursionError:
            pass
        raise ArgumentError(f"{self.option('schema')}: types are nested more than {MOST_NESTED} deep")

    def _advice(self) -> str:
        """What else to ask for where no decoder can be made; "" if that is not known."""
        if self.max_depth > 1 and self._is_read(max_depth=1):
            return f"{self.option('max_depth')}={self.max_depth} is too much for it: take a smaller one"
        is_newest = self.schema is None and isinstance(self.reader, Schema) and self.reader.id is not None
        if is_newest and not self._is_read(columns=None):
            older = f"an older one in {self.option('schema')} (kolumn schemas --id prints it), or its time in {self.option('as_of')}"
            return f"it is the newest one of its subject, so give {older}"
        return ""

    def _is_read(self, **changed: Any) -> bool:
        other = replace(self, **changed)
        other.__dict__["writers"] = self.writers
        try:
            other._made()
        except ArgumentError:
            return False
        return True

    def _decoder(self) -> "ValueDecoder":
        if self.envelope is not None:
            from kolumn.values.envelopes import opened

            return opened(self.envelope, self.reader, self.columns, self.time_unit, self.whole, self.option("envelope"))
        schema, columns, where = self.reader, self.columns, self.option("schema")
        if self.kind == "avro":
            from kolumn.values.avro import AvroDecoder
            from kolumn.values.avro_types import AvroShape

            return AvroDecoder(schema, columns, self.writers, AvroShape(self.max_depth, self.unions, self.time_unit, self.uuids == "arrow"))
        if self.kind == "protobuf":
            from kolumn.values.protobuf import ProtobufDecoder

            how: dict[str, Any] = {"max_depth": self.max_depth, "time_unit": self.time_unit}
            return ProtobufDecoder(schema, self.message, columns, schemas=self.writers, null_fields=self.errors == "null-field", **how)
        if self.kind == "json":
            from kolumn.values.json import JsonDecoder
            from kolumn.values.json_schema import type_of
            from kolumn.values.json_types import nested_type

            look_up = None if self.writers is None else self.writers.version
            is_written = isinstance(schema, Schema)
            type = type_of(schema, where, look_up, self.max_depth) if is_written else nested_type(schema, where)
            return JsonDecoder(type if columns is None else only_fields(type, columns, self.option("columns")), self.time_unit)
        from kolumn.values.separated import FixedDecoder, SeparatedDecoder

        return SeparatedDecoder(schema, self.separator, columns, where) if self.kind == "csv" else FixedDecoder(schema, columns, where)

    def whole(self, reader: object, columns: Sequence[str] | None) -> "ValueDecoder":
        """The decoder of values with what is around them."""
        inner = replace(self, envelope=None, reader=reader, columns=None if columns is None else tuple(columns))
        inner.__dict__["writers"] = self.writers
        return inner.decoder

    @cached_property
    def of_internal(self) -> "InternalDecoder":
        """The decoder of the format `INTERNAL`, to which keys and values belong together."""
        from kolumn.values.internal.messages import InternalDecoder

        return InternalDecoder(self.column, self.reader)

    @property
    def looks_at(self) -> tuple[str, ...]:
        """Record columns that are needed beside the own one."""
        if self.format == INTERNAL:
            from kolumn.values.internal.messages import LOOKS_AT

            return LOOKS_AT
        return ("headers",) if self.framer.needs_headers or self.envelope == CLOUD_EVENTS else ()

    @cached_property
    def writers(self) -> Schemas | None:
        return None if self.open_schemas is None else self.open_schemas()

    @cached_property
    def framer(self) -> "PayloadFramer":
        """What finds the bodies in payloads; `ArgumentError` if there is no framing of that name."""
        from kolumn.values.framing import FRAMINGS, OF_PROTOBUF, BareFramer, Framer

        option, framing = self.option("framing"), self.framing
        if framing not in FRAMINGS:
            raise ArgumentError(unknown(option, framing, FRAMINGS))
        is_open = framing in ("auto", "none")
        if (self.format in SCHEMALESS and not is_open) or (framing in OF_PROTOBUF and self.kind not in ("protobuf", "registry")):
            raise ArgumentError(f"{option}={framing!r}: not for {self.option('format')}={self.format!r}")
        if self.format in SCHEMALESS or (self.skip and is_open and self.writers is None):
            return BareFramer(self.skip)
        return Framer(framing, self.writers, is_key=self.column == "key", skip=self.skip)

    @cached_property
    def _bare_values(self) -> "BareValues":
        """What finds values of Avro that only look as if they had a prefix."""
        from kolumn.values.avro_bare import BareValues

        return BareValues(self.reader, self.option("framing"))

    def bodies(self, payload: pa.BinaryArray, headers: pa.ListArray | None) -> tuple["Bodies", pa.Array]:
        """The bodies of payloads, and their schema ids: as the framer finds them, and as Avro's values tell."""
        bodies, ids = self.framer.bodies(payload, headers)
        return self._bare_values.settled(bodies, ids) if bodies.bare and self.kind == "avro" else (bodies, ids)

    @property
    def type(self) -> pa.DataType:
        return self.of_internal.type if self.format == INTERNAL else self.decoder.type

    @property
    def names(self) -> tuple[str, ...]:
        return (self.column, *beside(self.column))

    @property
    def told(self) -> tuple[str, ...]:
        """The columns by which a caller may see what is lost."""
        return (self.column, f"{self.column}Valid", f"{self.column}Problems")

    def option(self, name: str) -> str:
        return f"{self.column}_{name}"

    def of(self, reader: Schema | object, open_schemas: Callable[[], Schemas] | None = None) -> "Typed":
        """The same with what is known of the source."""
        return replace(self, reader=reader, open_schemas=open_schemas)


def reader_of(typed: Typed, kind: Kind | None = None) -> Any:
    """What the decoder is made of, from the caller's schema."""
    schema = typed.schema
    if isinstance(schema, Schema):
        return schema
    kind = kind or KINDS.get(typed.format)
    if kind == "AVRO":
        return Schema("AVRO", schema if isinstance(schema, str) else json.dumps(schema))
    if kind == "PROTOBUF":
        return Schema("PROTOBUF", schema) if isinstance(schema, str) else schema
    if kind == "JSON" and typed.format == "registry":
        return Schema("JSON", schema if isinstance(schema, str) else json.dumps(schema))
    return _json_schema(schema) or schema


def _json_schema(schema: object) -> Schema | None:
    """A schema of "json" that is a JSON Schema, told by keywords with values that no mapping of names to types has."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError):
            # What is wrong with it is said where it is read.
            return None
    if not isinstance(schema, Mapping):
        return None
    is_object = isinstance(schema.get("properties"), Mapping) and schema.get("type", "object") == "object"
    is_map = schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), Mapping)
    is_reference = isinstance(ref := schema.get("$ref"), str) and ref not in TYPES
    parts = [schema.get(name) for name in ("allOf", "anyOf", "oneOf")]
    is_of_parts = any(isinstance(some, list) and some and all(isinstance(one, Mapping) and _is_part(one) for one in some) for some in parts)
    if is_object or is_map or is_reference or is_of_parts or "json-schema.org" in str(schema.get("$schema")):
        return Schema("JSON", json.dumps(schema))
    return None


def _is_part(schema: Mapping[str, object]) -> bool:
    return isinstance(schema.get("properties"), Mapping) or isinstance(schema.get("$ref"), str) or schema.get("type") in ("object", "null")


def typed_of(options: Mapping[str, Any]) -> tuple[Typed, ...]:
    """The typed columns that a call asks for, keys first; `ArgumentError` for a value that is not allowed, or an option that its format
    lacks.
    """
    if options["decode"] is not None:
        return _of_internal(options)
    typed = []
    for column in ("key", "value"):
        own = {name.partition("_")[2]: value for name, value in options.items() if name.startswith(f"{column}_")}
        if own["format"] is None:
            named = [name for name, value in own.items() if value != PAYLOAD_DEFAULTS[f"{column}_{name}"]]
            if named:
                names = ", ".join(f"{column}_{name}" for name in named)
                raise ArgumentError(f"options of {column}s, here {names}, go with {column}_format")
            continue
        typed.append(_checked(column, own))
    return tuple(typed)


def _of_internal(options: Mapping[str, Any]) -> tuple[Typed, ...]:
    if options["decode"] not in get_args(Decode):
        raise ArgumentError(f"decode={options['decode']!r}: {_expected(options['decode'], get_args(Decode))}")
    named = [name for name, value in options.items() if name.partition("_")[0] in ("key", "value") and value != PAYLOAD_DEFAULTS[name]]
    if named:
        raise ArgumentError(f"decode={INTERNAL!r} decodes keys and values: leave out {', '.join(named)}")
    return Typed("key", INTERNAL), Typed("value", INTERNAL)


def _checked(column: str, own: dict[str, Any]) -> Typed:
    format, flat = own["format"], own.pop("as")
    chosen = {**own, "as": "struct" if flat is None else flat}
    for name, choices in _CHOICES.items():
        if chosen[name] not in choices and not (chosen[name] is None and PAYLOAD_DEFAULTS[f"{column}_{name}"] is None):
            raise ArgumentError(f"{column}_{name}={chosen[name]!r}: {_expected(chosen[name], choices)}")
    for name, owners in _OWNERS.items():
        if own[name] != PAYLOAD_DEFAULTS[f"{column}_{name}"] and format not in owners:
            raise ArgumentError(f"{column}_{name}={own[name]!r}: for {column}_format={' or '.join(map(repr, owners))} only")
    for name, least in (("skip", 0), ("sample", 1), ("max_depth", 1)):
        if isinstance(own[name], bool) or not isinstance(own[name], int) or not least <= own[name] < 2**63:
            raise ArgumentError(f"{column}_{name}={own[name]!r}: expected an integer, at least {least}, and less than 2**63")
    separator = own["separator"]
    if len(separator.encode()) != 1 or separator in '"\r\n' or (separator != "," and format != "csv"):
        raise ArgumentError(
            f"{column}_separator={separator!r}: expected one ASCII character but quotes and line ends, for {column}_format='csv' only"
        )
    if format in SCHEMALESS and own["schema"] is None:
        raise ArgumentError(f"{column}_format={format!r} needs {column}_schema, a mapping of names to types")
    names = own.pop("columns")
    return Typed(column, columns=_names(names, f"{column}_columns"), flat=flat == "columns", **own)


def _names(given: object, option: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else ()
    if isinstance(given, Mapping) or not names or not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"{option}={given!r}: expected names of fields")
    return names


def _expected(value: object, choices: tuple[str, ...]) -> str:
    near = get_close_matches(str(value), choices, 1)
    return f"expected one of {', '.join(choices)}" + (f"; did you mean {near[0]!r}?" if near else "")


def stored_columns(columns: Iterable[str], typed: Sequence[Typed]) -> tuple[str, ...]:
    """Record columns that a batch needs for these columns; keys and values are payloads in it."""
    names: dict[str, None] = {}
    for name in columns:
        owner = next((owner for owner in typed if name in owner.names or name in (_reason(owner), _lost(owner))), None)
        names |= {name: None} if owner is None else dict.fromkeys((owner.column, *owner.looks_at))
    return tuple(names)


def watched_columns(columns: tuple[str, ...], typed: Sequence[Typed]) -> tuple[str, ...]:
    """The columns, those that tell what was lost of values, and those by which an error about a value is found, where it is one."""
    strict = [owner for owner in typed if owner.errors == "raise" and any(name in columns for name in owner.names)]
    added = [*_WHERE, *map(_reason, strict)] if strict else []
    added += [_lost(owner) for owner in typed if any(name in columns for name in owner.told)]
    return (*columns, *(name for name in added if name not in columns))


def schema_of(columns: Iterable[str], binary: str, typed: Sequence[Typed]) -> pa.Schema:
    """Arrow schema of the columns that a read returns; `ArgumentError` if two columns would have one name."""
    if not typed:
        return record_schema(tuple(columns), binary)
    fields = [field for name in columns for field in _fields(name, binary, typed)]
    names = [field.name for field in fields]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ArgumentError(f"two columns would be called {', '.join(twice)}: name others in columns, or take a struct column")
    return pa.schema(fields)


def typed_batch(batch: pa.RecordBatch, columns: Sequence[str], typed: Sequence[Typed]) -> pa.RecordBatch:
    """The columns of a batch with `stored_columns`; a typed column is one struct, whatever the options say. Where `isControl` is among
    them, nothing is expected of control records: their values are null.
    """
    stored = dict(zip(batch.schema.names, batch.columns, strict=True))
    arrays = dict(stored)
    for owner in typed:
        if not any(name in columns for name in (*owner.names, _reason(owner), _lost(owner))):
            continue
        if owner.format == INTERNAL:
            arrays |= _internal(owner, stored)
            continue
        payload = raw = stored[owner.column]
        if "isControl" in stored and stored["isControl"].true_count:
            payload = pc.if_else(stored["isControl"], None, raw.cast(pa.binary()))
        arrays |= decoded(owner, payload, stored.get("headers"), columns) | {f"{owner.column}Raw": raw}
    return pa.RecordBatch.from_arrays([arrays[name] for name in columns], names=list(columns))


def finished(
    batches: Iterator[pa.RecordBatch], columns: Sequence[str], binary: str, typed: Sequence[Typed], lost: LostValues | None = None
) -> Iterator[pa.RecordBatch]:
    """Batches as callers get them, from those with `watched_columns`. What is lost is counted in ``lost``; without it, one warning tells it
    when no more are taken. Raises `PayloadError` at the first record whose value or key is not valid, after the records before it.
    """
    schema = schema_of(columns, binary, typed)
    flat = {owner.column for owner in typed if owner.column in columns and owner.flat and pa.types.is_struct(owner.type)}
    with counted_in(lost) as counted:
        for batch in batches:
            good, error = _judged(batch, typed)
            for owner in typed:
                if _lost(owner) in good.schema.names:
                    counted.add(owner.column, good.column(_lost(owner)))
            if good.num_rows:
                arrays = [array for name in columns for array in (good.column(name).flatten() if name in flat else [good.column(name)])]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            if error is not None:
                raise error


@contextmanager
def counted_in(lost: LostValues | None) -> Iterator[LostValues]:
    """Where a read counts the values that it loses: ``lost``; without it, one warning tells them when the read ends."""
    counted = LostValues() if lost is None else lost
    try:
        yield counted
    finally:
        if lost is None and counted.values:
            logger.warning("%s", counted.said)


def _reason(owner: Typed) -> str:
    """Name of the column that says what is wrong with a payload; no column of a caller has a space."""
    return f"{owner.column} error"


def _lost(owner: Typed) -> str:
    """Name of the column with what was lost of each payload, of type `PROBLEMS`, or null where nothing was."""
    return f"{owner.column} lost"


def _fields(name: str, binary: str, typed: Sequence[Typed]) -> list[pa.Field]:
    for owner in typed:
        if name == owner.column:
            if owner.flat and pa.types.is_struct(owner.type):
                # Null in the rows whose value is, whatever the schema of the value says.
                return [field.with_nullable(True) for field in owner.type]
            return [pa.field(name, owner.type)]
        if name in beside(owner.column):
            raw = name.endswith("Raw") and binary == "view"
            return [pa.field(name, pa.binary_view() if raw else beside(owner.column)[name])]
    return list(record_schema((name,), binary))


def _internal(owner: Typed, stored: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
    plain = {name: stored[name].cast(pa.binary()) if name in ("key", "value") else stored[name] for name in owner.looks_at}
    values, valid = owner.of_internal.decode(plain)
    valid_name, id_name, problems_name, raw_name = beside(owner.column)
    lost = _problems(_wrong(plain[owner.column], valid), {})
    return {
        owner.column: values, valid_name: pa.array(valid), id_name: pa.nulls(len(values), pa.int64()), raw_name: stored[owner.column],
        problems_name: lost.cast(PROBLEMS), _lost(owner): lost,
    }  # fmt: skip


def decoded(owner: Typed, payload: pa.Array, headers: pa.ListArray | None, columns: Sequence[str]) -> dict[str, pa.Array]:
    """A typed column, those beside it, and what was lost, of payloads; those that ``columns`` do not need may be left out."""
    plain = payload.cast(pa.binary())
    bodies, schema_id = owner.bodies(plain, headers)
    valid_name, id_name, problems_name, raw_name = beside(owner.column)
    arrays: dict[str, pa.Array] = {id_name: schema_id, raw_name: payload}
    if any(name in columns for name in (owner.column, valid_name, problems_name, _reason(owner), _lost(owner))):
        if owner.envelope == CLOUD_EVENTS and headers is not None:
            from kolumn.values.cloud_events import with_headers, with_modes

            bodies = events = with_modes(bodies, headers)
            found = _salvaged(owner, bodies, *owner.decoder.decode(bodies))
            values, valid, fields = with_headers(found, events, plain, headers, owner.errors == "null-field")
        else:
            values, valid, fields = _salvaged(owner, bodies, *owner.decoder.decode(bodies))
        lost = _problems(_wrong(plain, valid), fields)
        arrays |= {owner.column: values, valid_name: pa.array(valid), problems_name: lost.cast(PROBLEMS), _lost(owner): lost}
        if _reason(owner) in columns:
            arrays[_reason(owner)] = _reasons(owner, plain, bodies, valid, fields)
    return arrays


def _salvaged(owner: Typed, bodies: "Bodies", values: pa.Array, valid: Flags) -> tuple[pa.Array, Flags, dict[int, tuple[str, ...]]]:
    """The column with what can be had of values that are not valid; which are valid now; and the lost fields of others by their rows."""
    left = np.flatnonzero(~valid & (np.asarray(bodies.length) >= 0))
    if not len(left):
        return values, valid, {}
    others, lost = owner.decoder.salvage(bodies.rows(left))
    valid, order = valid.copy(), np.arange(len(values))
    valid[left] = fine = np.array([not paths for paths in lost], bool)
    if owner.errors == "null-field":
        fine[:] = True
    if fine.any() and others.null_count < len(others):
        order[left[fine]] = len(values) + np.flatnonzero(fine)
        values = pa.concat_arrays([values, others]).take(pa.array(order))
    return values, valid, {row: paths for row, paths in zip(left.tolist(), lost, strict=True) if paths}


def _wrong(payload: pa.BinaryArray, valid: Flags) -> Flags:
    """Which payloads are not valid, of those that are there."""
    return ~valid & payload.is_valid().to_numpy(zero_copy_only=False) if payload.null_count else ~valid


def _problems(wrong: Flags, fields: Mapping[int, tuple[str, ...]]) -> pa.Array:
    """The lost fields of each row, the whole value where nothing else is said; of type null if no row has any."""
    if not wrong.any():
        return pa.nulls(len(wrong))
    problems: list[tuple[str, ...] | None] = [None] * len(wrong)
    for row in np.flatnonzero(wrong).tolist():
        problems[row] = fields.get(row, (WHOLE,))
    return pa.array(problems, PROBLEMS)


def _reasons(owner: Typed, payload: pa.BinaryArray, bodies: "Bodies", valid: Flags, fields: Mapping[int, tuple[str, ...]]) -> pa.Array:
    """What is wrong with each payload, null for those that are right or null."""
    reasons: list[str | None] = [None] * len(valid)
    for row in np.flatnonzero(_wrong(payload, valid)).tolist():
        data: bytes = payload[row].as_py()
        begin = repr(data[:_SHOWN]) + ("…" if len(data) > _SHOWN else "")
        if bodies.length[row] < 0:
            reasons[row] = f"{len(data)} bytes, {begin}: what names its schema is malformed, unknown, or says that it is no binary Avro"
        else:
            named = [path for path in fields.get(row, ()) if path != WHOLE]
            which = f", of which {', '.join(named[:TOLD])} {'do' if len(named) > 1 else 'does'} not fit" if named else ""
            reasons[row] = f"{len(data)} bytes, {begin}: not {owner.format} of the type {owner.type}{which}"
    return pa.array(reasons, pa.string())


def _judged(batch: pa.RecordBatch, typed: Sequence[Typed]) -> tuple[pa.RecordBatch, PayloadError | None]:
    first, error = batch.num_rows, None
    for owner in typed:
        index = batch.schema.get_field_index(_reason(owner))
        if index >= 0 and batch.column(index).null_count < batch.num_rows:
            row = int(np.flatnonzero(batch.column(index).is_valid().to_numpy(zero_copy_only=False))[0])
            if row < first:
                first = row
                offset, segment = (batch.column(name)[row].as_py() for name in _WHERE)
                error = PayloadError(segment, offset, owner.column, batch.column(index)[row].as_py())
    return batch.slice(0, first), error


def payload_names(columns: Iterable[str], typed: Sequence[Typed]) -> frozenset[str]:
    """Names of the columns that hold payloads, or headers, as they were stored."""
    own = {owner.column for owner in typed}
    return frozenset({name for name in columns if name in RECORD_COLUMNS and name not in own} | {f"{name}Raw" for name in own})
