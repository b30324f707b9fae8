"""Protobuf schemas: .proto text, sets of file descriptors and generated classes become descriptors of messages, and their types Arrow's.
Text is compiled by protoc of grpcio-tools, in a process and a folder of its own.

    int32, sint32, sfixed32            int32            float, double       float, double
    uint32, fixed32                    uint32           bool                bool
    int64, sint64, sfixed64            int64            string, bytes       string, binary
    uint64, fixed64                    uint64           enum                dictionary<int32, string>
    message, group                     struct           repeated            list<element>
    map<K, V>                          map<K, V>        oneof               its members, each nullable
    google.protobuf.Timestamp          timestamp[ns, UTC], or another unit
    google.protobuf.Duration           duration[ns], likewise
    google.protobuf.Int64Value, ...    the value's type, nullable
    google.protobuf.Struct, ListValue, Value, and a message in itself      JSON text, see `kolumn.values.protobuf_json`

Fields with presence are nullable: those of proto2, ``optional`` ones, members of a oneof, messages. Others have their default when they
are absent. A number that an open enum has no symbol for is its own symbol, such as "7". Times and open enums are nullable in any case.

The interpreter writes *raw* columns first. In these Timestamp, Duration and wrappers are the messages that they are on the wire, since
messages that come in parts are merged. Open enums are numbers there, closed ones indexes of symbols, what becomes JSON text is bytes, and
required fields can be null.
"""

import base64
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa

from kolumn.core.errors import ArgumentError
from kolumn.core.packages import missing_package
from kolumn.values.decoder import MOST_NESTED, Wanted, wanted_fields
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.protobuf_imports import built_in_imports, is_built_in, not_found
from kolumn.values.schemas.schema import Schema, Schemas, UnnamedMessageError

# grpcio-tools may be found by sys.path alone. What the process itself finds comes first.
_PROGRAM = "import json, sys; sys.path += json.loads(sys.argv[1]); from grpc_tools import protoc; sys.exit(protoc.main(sys.argv[1:]))"
_SECONDS = 60
_WELL_KNOWN = ("any", "descriptor", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
_NOT_FOUND = re.compile(r"^(?:\S+:\d+:\d+: )?(\S+): File not found\.", re.MULTILINE)
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}")
_DOUBLE, _FLOAT, _INT64, _UINT64, _INT32, _FIXED64, _FIXED32, _BOOL, _STRING, _GROUP, _MESSAGE, _BYTES, _UINT32, _ENUM = range(1, 15)
_SFIXED32, _SFIXED64, _SINT32, _SINT64 = range(15, 19)
_SCALARS = {
    _DOUBLE: pa.float64(), _FLOAT: pa.float32(), _INT64: pa.int64(), _UINT64: pa.uint64(), _INT32: pa.int32(), _FIXED64: pa.uint64(),
    _FIXED32: pa.uint32(), _BOOL: pa.bool_(), _STRING: pa.string(), _BYTES: pa.binary(), _UINT32: pa.uint32(), _SFIXED32: pa.int32(),
    _SFIXED64: pa.int64(), _SINT32: pa.int32(), _SINT64: pa.int64(), _ENUM: pa.dictionary(pa.int32(), pa.string()),
}  # fmt: skip
"""Arrow's types by the numbers of types in FieldDescriptorProto."""
_WRAPPED = ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
WRAPPERS = frozenset(f"google.protobuf.{name}Value" for name in _WRAPPED)
TIMES = frozenset({"google.protobuf.Timestamp", "google.protobuf.Duration"})
_TIME_FIELDS = [("seconds", 1, _INT64), ("nanos", 2, _INT32)]
JSONS = frozenset(f"google.protobuf.{name}" for name in ("Struct", "ListValue", "Value"))
_OF_TEXT = re.compile(r"schema\d*\.proto")  # the name of a file that is made of text
_MOST_COLUMNS = 100_000  # Messages that contain each other have a column for each path between them.


@dataclass(frozen=True)
class File:
    """A .proto file with all that it imports, in a pool of descriptors. ``counts_made``: message indexes count entries of maps and groups.
    They do for confluent-kafka for Python, which registers descriptors.
    """

    descriptor: Any
    pool: Any
    counts_made: bool = False

    @property
    def _named(self) -> str:
        """The name of the file; text has none."""
        name = self.descriptor.name
        return "the schema" if _OF_TEXT.fullmatch(name) else str(name)

    def message(self, name: str | None) -> Any:
        """Descriptor of a message by its full name, or by its name within the package; without a name the only message of the file.
        `ArgumentError` if there is no such message, or there are several and none is named.
        """
        messages = list(self.descriptor.message_types_by_name.values())
        names = ", ".join(message.full_name for message in messages) or "none"
        if name is None:
            if len(messages) == 1:
                return messages[0]
            error = UnnamedMessageError(f"name the message of {self._named}: it has {names}")
            error.file = self
            raise error
        package = self.descriptor.package
        for full in (name, f"{package}.{name}" if package else name):
            try:
                return self.pool.FindMessageTypeByName(full)
            except KeyError:
                continue
        nested = [full for full in self.places() if full.endswith(f".{name}")]
        if nested:
            raise ArgumentError(f"{self._named} has no message {name!r}: did you mean {' or '.join(nested)}?")
        raise ArgumentError(f"{self._named} has no message {name!r}: it has {names}")

    def places(self) -> "dict[str, Place]":
        """The messages of this file by their full names, imports left out."""
        paths: dict[str, tuple[int, ...]] = {}
        names: list[str] = []
        todo: list[tuple[tuple[int, ...], list[Any]]] = [((), list(self.descriptor.message_types_by_name.values()))]
        while todo:
            path, messages = todo.pop()
            names += [message.full_name for message in messages]
            for number, message in enumerate(message for message in messages if self.counts_made or not _is_made(message)):
                paths[message.full_name] = (*path, number)
                todo.append(((*path, number), list(message.nested_types)))
        numbers = {name: number for number, name in enumerate(sorted(names))}
        last = {name: name.rpartition(".")[2] for name in paths}
        counted = Counter(last.values())
        # Of several messages with the same last name it means the one that is in no other.
        return {
            name: Place(path, numbers[name], (name, last[name]) if len(path) == 1 or counted[last[name]] == 1 else (name,))
            for name, path in paths.items()
        }


def _is_made(message: Any) -> bool:
    """Whether protoc made a message for a map or a group. Confluent's Java classes, which count in the text, do not see it."""
    around = message.containing_type
    groups = [] if around is None else [field.message_type for field in around.fields if field.type == _GROUP]
    return bool(message.GetOptions().map_entry) or message in groups


class Place(NamedTuple):
    """How what precedes values names a message of a file. ``path`` are Confluent's message indexes: of the outermost message in the file,
    of a nested one in that, and so on. Entries of maps and groups do not count, as in its Java classes; confluent-kafka for Python counts
    them, which only `File.counts_made` tells: a registry that turns descriptors into text hides it. ``number`` is AWS Glue's: messages are
    counted in the order of their names (its ``MessageIndexFinder``). ``names`` are the full name, and its last part, which is what
    Apicurio's serializers write, unless that means another message of the file.
    """

    path: tuple[int, ...]
    number: int
    names: tuple[str, ...]


def file_of(schema: Schema | bytes | str | type, schemas: Schemas | None = None) -> File:
    """The file that a schema is. That is a registered schema, whose references are looked up in ``schemas``; a serialised
    FileDescriptorSet, whose last file counts, as protoc writes it with ``--include_imports``; .proto text; or a class generated by protoc.
    Instead of text a registered schema may be a serialised FileDescriptorProto in Base64, as confluent-kafka registers it. `ArgumentError`
    if it is not valid, or a reference is not found; `MissingError` if the package protobuf or grpcio-tools is missing.
    """
    if isinstance(schema, Schema):
        if schema.kind != "PROTOBUF":
            raise ArgumentError(f"schema {schema.id} is of type {schema.kind}, not PROTOBUF")
        imports, which = _referenced(schema, schemas), "" if schema.id is None else f" {schema.id}"
        described = _decoded(schema.text, imports, which)
        return _file(described, counts_made=True) if described else _file(_compiled(schema.text, imports, which))
    if isinstance(schema, str):
        return file_of(Schema("PROTOBUF", schema))
    if isinstance(schema, bytes):
        return _file(schema)
    descriptor = getattr(schema, "DESCRIPTOR", None)
    if descriptor is None or not hasattr(descriptor, "file"):
        raise ArgumentError(f"a Protobuf schema is .proto text, a FileDescriptorSet or a generated class, not {schema!r}")
    return File(descriptor.file, descriptor.file.pool)


def _referenced(schema: Schema, schemas: Schemas | None) -> dict[str, str]:
    """Texts of the files that a registered schema imports, by the names under which they are imported."""
    texts: dict[str, str] = {}
    todo = list(schema.references)
    while todo:
        reference = todo.pop()
        if reference.name in texts:
            continue
        imported = None if schemas is None else schemas.version(reference.subject, reference.version)
        if imported is None:
            raise ArgumentError(f"schema {schema.id} imports {reference.name!r}: {reference.subject} {reference.version} is not there")
        texts[reference.name] = imported.text
        todo += imported.references
    return texts


def _decoded(text: str, imports: dict[str, str], which: str) -> list[bytes]:
    """Files in Base64, as FileDescriptorProto; none if ``text`` is not one. No .proto text with a field or message is Base64."""
    try:
        files = [base64.b64decode(file.strip(), validate=True) for file in (*imports.values(), text)]
    except ValueError as error:
        if _BASE64.fullmatch(text.strip()):
            raise ArgumentError(f"schema{which} is a FileDescriptorProto, and a file that it imports is not one") from error
        return []
    return files if text.strip() else []


def _compiled(text: str, imports: dict[str, str], which: str) -> bytes:
    """A FileDescriptorSet of .proto text. Nothing outside of a new folder is written, and only that folder and protoc's own are read."""
    name = next(name for number in count() if (name := f"schema{number or ''}.proto") not in imports)
    with tempfile.TemporaryDirectory(prefix="kolumn-") as name_of_folder:
        folder = Path(name_of_folder)
        texts = {**imports, name: text}
        for path, content in {**built_in_imports(texts.values(), texts), **texts}.items():
            pure = PurePosixPath(path)
            if pure.is_absolute() or ".." in pure.parts or "\\" in path or "\0" in path or not pure.parts:
                raise ArgumentError(f"schema{which}: {path!r} cannot be the name of an imported file")
            file = folder / "proto" / pure
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content, encoding="utf-8")
        _protoc(folder, name, which)
        return (folder / "set").read_bytes()


def _protoc(folder: Path, name: str, which: str) -> None:
    try:
        from grpc_tools import protoc
    except ImportError as error:
        needs = f".proto text needs grpcio-tools, a FileDescriptorSet does not ({error})"
        raise missing_package(needs, "grpcio-tools") from error
    known = Path(protoc.__file__).parent / "_proto"
    paths = json.dumps([path for path in sys.path if path])
    command = [sys.executable, "-P", "-c", _PROGRAM, paths, f"-I{folder / 'proto'}", f"-I{known}", "--include_imports",
               f"--descriptor_set_out={folder / 'set'}", name]  # fmt: skip
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ArgumentError(f"schema{which}: protoc took longer than {_SECONDS} s") from error
    if done.returncode:
        told = done.stderr.decode(errors="replace").replace(f"{folder / 'proto'}/", "").strip()
        if missing := _NOT_FOUND.search(told):
            raise ArgumentError(not_found(missing[1], which))
        lines = told.splitlines()
        wrong = [line for line in lines if "warning:" not in line] or lines or [f"protoc ended with {done.returncode}"]
        raise ArgumentError(f"schema{which} is not valid: {'; '.join(wrong[:5])}")


def _file(serialised: bytes | list[bytes], *, counts_made: bool = False) -> File:
    """The last file of a FileDescriptorSet, or of several FileDescriptorProto."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message
    except ImportError as error:
        raise missing_package(f"Protobuf schemas need protobuf: {error}", "protobuf", "grpcio-tools") from error
    proto = descriptor_pb2.FileDescriptorProto
    try:
        is_set = isinstance(serialised, bytes)
        files = list(descriptor_pb2.FileDescriptorSet.FromString(serialised).file if is_set else map(proto.FromString, serialised))
    except message.DecodeError as error:
        raise ArgumentError(f"these bytes are not a FileDescriptorSet: {error}") from error
    if not files:
        raise ArgumentError("these bytes are a FileDescriptorSet without files")
    built_in = sorted({name for file in files for name in file.dependency if is_built_in(name)} - {file.name for file in files})
    if built_in:
        text = 'syntax = "proto3"; ' + " ".join(f'import "{name}";' for name in built_in)
        files = [*descriptor_pb2.FileDescriptorSet.FromString(_compiled(text, {}, "")).file[:-1], *files]
    # Files of google/protobuf that are imported: nobody sends them along.
    known = [import_module(f"google.protobuf.{name}_pb2").DESCRIPTOR for name in _WELL_KNOWN]
    by_name = {descriptor.name: proto.FromString(descriptor.serialized_pb) for descriptor in known}
    wanted = {name for file in files for name in file.dependency}
    by_name = {name: file for name, file in by_name.items() if name in wanted} | {file.name: file for file in files}
    graph = {name: [other for other in file.dependency if other in by_name] for name, file in by_name.items()}
    pool = descriptor_pool.DescriptorPool()
    try:
        for name in TopologicalSorter(graph).static_order():
            pool.AddSerializedFile(by_name[name].SerializeToString())
        return File(pool.FindFileByName(files[-1].name), pool, counts_made)
    except CycleError as error:
        raise ArgumentError(f"the FileDescriptorSet is not valid: {error.args[1][0]} imports itself") from None
    except (TypeError, KeyError, ValueError) as error:
        raise ArgumentError(f"the FileDescriptorSet is not valid: {error}") from error


JSON = "json"


@dataclass(frozen=True)
class Shape:
    """A field, or a message as a whole, and its types. ``number`` and ``field`` (a descriptor) of a message as a whole are 0 and None.
    ``fields`` are those of a message with columns, in the order of the file; of a map key and value. ``raw`` is what the interpreter
    writes, ``type`` what comes out, of a repeated field its list; ``raw_null`` and ``null``: whether they can be null. ``special`` is the
    full name of a Timestamp, a Duration or a wrapper, `JSON` for a message that becomes JSON text, else "".
    """

    name: str
    number: int
    field: Any
    fields: "tuple[Shape, ...]"
    raw: pa.DataType
    type: pa.DataType
    raw_null: bool
    null: bool
    special: str

    @property
    def is_map(self) -> bool:
        return self.field is not None and is_map(self.field)

    @property
    def is_list(self) -> bool:
        return self.field is not None and bool(self.field.is_repeated) and not self.is_map

    @property
    def is_message(self) -> bool:
        """Whether it, or its element, is a message or a group, and is written as such."""
        return self.field is None or (self.field.type in (_MESSAGE, _GROUP) and self.special != JSON)

    @property
    def one_type(self) -> pa.DataType:
        """The type of an element of a list, and else of the field."""
        return self.type.value_type if self.is_list else self.type


def has_required(shape: Shape) -> bool:
    return (shape.field is not None and bool(shape.field.is_required)) or any(has_required(part) for part in shape.fields)


def has_json(shape: Shape) -> bool:
    return shape.special == JSON or any(map(has_json, shape.fields))


def is_map(field: Any) -> bool:
    return field.type == _MESSAGE and field.is_repeated and bool(field.message_type.GetOptions().map_entry)


def symbols(enum: Any) -> dict[int, str]:
    """Numbers and names of an enum. The default is the first; of several names of a number the first counts."""
    names: dict[int, str] = {}
    for value in enum.values:
        names.setdefault(value.number, value.name)
    return names


def is_closed(enum: Any) -> bool:
    """Whether numbers without a symbol are unknown fields: enums of proto2, and those that an edition declares closed."""
    return bool(enum.is_closed)


@dataclass
class Rules:
    """What types a message gets: with ``null_fields`` every field can be null, ``max_depth`` is how often a message is in itself before it
    is JSON text, ``unit`` that of times.
    """

    null_fields: bool = False
    max_depth: int = 1
    unit: str = "ns"
    columns: int = 0
    """So many fields have types so far."""


def shape(message: Any, columns: Iterable[str] | None = None, rules: Rules | None = None) -> Shape:
    """The types of a message. ``columns`` are names of fields, with dots for those of messages in it ("id", "customer.name"), or None for
    all; a message stands for all of its fields. `ArgumentError` if there is no such field, or there are too many of them.
    """
    fields = _fields(message, None if columns is None else wanted_fields(columns), (), (message.full_name,), rules or Rules())
    raw, type = _struct(fields)
    return Shape("", 0, None, fields, raw, type, True, True, "")


def _struct(fields: Iterable[Shape]) -> tuple[pa.DataType, pa.DataType]:
    raw = pa.struct([pa.field(part.name, part.raw, nullable=part.raw_null) for part in fields])
    return raw, pa.struct([pa.field(part.name, part.type, nullable=part.null) for part in fields])


def _fields(message: Any, wanted: Wanted, path: tuple[str, ...], around: tuple[str, ...], rules: Rules) -> tuple[Shape, ...]:
    if wanted is not None:
        missing = sorted(set(wanted) - {field.name for field in message.fields})
        if missing:
            names = ", ".join(field.name for field in message.fields) or "no fields"
            raise ArgumentError(f"{message.full_name} has no field {missing[0]!r}: it has {names}")
    return tuple(
        _field(field, None if wanted is None else wanted[field.name], (*path, field.name), around, rules)
        for field in message.fields if wanted is None or field.name in wanted
    )  # fmt: skip


def _field(field: Any, wanted: Wanted, path: tuple[str, ...], around: tuple[str, ...], rules: Rules) -> Shape:
    fields: tuple[Shape, ...] = ()
    special, where = "", ".".join(path)
    rules.columns += 1
    if rules.columns > _MOST_COLUMNS:
        raise ArgumentError(f"{around[0]} has more than {_MOST_COLUMNS} fields, {where} among them: name some, or lower max_depth")
    if field.type in (_MESSAGE, _GROUP):
        inner = field.message_type
        special = _special(inner)
        # Entries of maps are in those of their values.
        if not special and not is_map(field) and around.count(inner.full_name) >= rules.max_depth and _contains_itself(inner):
            special = JSON
        value = inner.fields_by_name["value"].message_type if is_map(field) else None
        if wanted is not None and value is not None and not _special(value):
            wanted = {"key": None, "value": wanted}
        elif wanted is not None and (special or is_map(field)):
            more = f" unless max_depth is more than {rules.max_depth}" if special == JSON and inner.full_name not in JSONS else ""
            raise ArgumentError(f"{where} is one column: its parts cannot be named{more}")
        if len(around) > MOST_NESTED:
            raise ArgumentError(f"{where}: messages are nested more than {MOST_NESTED} deep")
        if special != JSON:
            fields = _fields(inner, wanted, path, (*around, inner.full_name), rules)
        raw, type = (pa.binary(), JSON_TEXT) if special == JSON else _struct(fields)
        if special in TIMES:
            type = pa.duration(rules.unit) if special.endswith("Duration") else pa.timestamp(rules.unit, "UTC")
        elif special in WRAPPERS:
            type = fields[0].type
    elif wanted is not None:
        raise ArgumentError(f"{where} is not a message: {where}.{next(iter(wanted))} is not there")
    else:
        raw = type = _SCALARS[field.type]
    if field.type == _ENUM:
        raw = pa.int32()
    can_be_null = special in TIMES or (field.type == _ENUM and not is_closed(field.enum_type))
    raw_null = null = False
    if is_map(field):
        key, value = fields
        raw = pa.map_(key.raw, pa.field("value", value.raw, nullable=False))
        type = pa.map_(key.raw, pa.field("value", value.type, nullable=value.null))
        can_be_null, special = False, ""
    elif field.is_repeated:
        raw = pa.list_(pa.field("element", raw, nullable=False))
        type = pa.list_(pa.field("element", type, nullable=can_be_null))
        can_be_null = False
    else:
        required = bool(field.is_required)
        # In an entry of a map what is absent has its default, messages too.
        present = bool(field.has_presence) and not field.containing_type.GetOptions().map_entry
        raw_null, null = present or required, (present and not required) or can_be_null
    # Keys of a map are never null, and no more its values than else.
    null |= rules.null_fields and not field.containing_type.GetOptions().map_entry
    return Shape(field.name, field.number, field, fields, raw, type, raw_null, null, special)


def _special(message: Any) -> str:
    name: str = message.full_name
    fields = [(field.name, field.number, field.type) for field in message.fields]
    if name in TIMES:
        return name if fields == _TIME_FIELDS else ""
    if name in JSONS:
        return JSON
    return name if name in WRAPPERS and [field[:2] for field in fields] == [("value", 1)] and not message.fields[0].is_repeated else ""


def _contains_itself(message: Any) -> bool:
    todo, known = [message], set[str]()
    while todo:
        for inner in (field.message_type for field in todo.pop().fields if field.message_type is not None):
            if inner.full_name == message.full_name:
                return True
            if inner.full_name not in known:
                known.add(inner.full_name)
                todo.append(inner)
    return False
