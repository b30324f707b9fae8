"""Protobuf schemas: .proto text, sets of file descriptors and generated classes become descriptors of messages.

.proto text is compiled by protoc of grpcio-tools, in a process and a folder of its own.
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
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from kolumn.core.errors import ArgumentError, MissingPackageError
from kolumn.values.schemas.schema import Schema, Schemas

# grpcio-tools may be found by sys.path alone. What the process itself finds comes first.
_PROGRAM = "import json, sys; sys.path += json.loads(sys.argv[1]); from grpc_tools import protoc; sys.exit(protoc.main(sys.argv[1:]))"
_SECONDS = 60
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}")
_GROUP = 10
"""Number of a group's type in FieldDescriptorProto."""


@dataclass(frozen=True)
class File:
    """A .proto file with all that it imports, in a pool of descriptors. ``counts_made``: message indexes count entries of maps and groups.
    They do for confluent-kafka for Python, which registers descriptors.
    """

    descriptor: Any
    pool: Any
    counts_made: bool = False

    def message(self, name: str | None) -> Any:
        """Descriptor of a message by its full name, or by its name within the package; without a name the only message of the file.

        `ArgumentError` if there is no such message, or there are several and none is named.
        """
        top = list(self.descriptor.message_types_by_name.values())
        if name is None:
            if len(top) == 1:
                return top[0]
            names = ", ".join(one.full_name for one in top) or "none"
            raise ArgumentError(f"name the message of {self.descriptor.name}: it has {names}")
        package = self.descriptor.package
        for full in (name, f"{package}.{name}" if package else name):
            try:
                return self.pool.FindMessageTypeByName(full)
            except KeyError:
                continue
        names = ", ".join(one.full_name for one in top) or "none"
        raise ArgumentError(f"{self.descriptor.name} has no message {name!r}: it has {names}")

    def places(self) -> "dict[str, Place]":
        """The messages of this file by their full names, imports left out."""
        found: dict[str, tuple[int, ...]] = {}
        names: list[str] = []
        todo: list[tuple[tuple[int, ...], list[Any]]] = [((), list(self.descriptor.message_types_by_name.values()))]
        while todo:
            path, messages = todo.pop()
            names += [one.full_name for one in messages]
            for number, one in enumerate(one for one in messages if self.counts_made or not _is_made(one)):
                found[one.full_name] = (*path, number)
                todo.append(((*path, number), list(one.nested_types)))
        numbers = {name: number for number, name in enumerate(sorted(names))}
        last = {name: name.rpartition(".")[2] for name in found}
        counted = Counter(last.values())
        places = {}
        for name, path in found.items():
            # Of several messages with the same last name it means the one that is in no other.
            means_it = len(path) == 1 or counted[last[name]] == 1
            places[name] = Place(path, numbers[name], (name, last[name]) if means_it else (name,))
        return places


def _is_made(message: Any) -> bool:
    """Whether protoc made a message for a map or a group. Confluent's Java classes, which count in the text, do not see it."""
    around = message.containing_type
    groups = [] if around is None else [field.message_type for field in around.fields if field.type == _GROUP]
    return bool(message.GetOptions().map_entry) or message in groups


class Place(NamedTuple):
    """How what precedes values names a message of a file.

    ``path`` are Confluent's message indexes: of the outermost message in the file, of a nested one in that, and so on. Entries of maps and
    groups do not count, as in its Java classes; confluent-kafka for Python counts them, which only `File.counts_made` tells: a registry
    that turns descriptors into text hides it. ``number`` is AWS Glue's: messages are counted in the order of their names (its
    ``MessageIndexFinder``). ``names`` are the full name, and its last part, which is what Apicurio's serializers write, unless that means
    another message of the file.
    """

    path: tuple[int, ...]
    number: int
    names: tuple[str, ...]


def file_of(schema: Schema | bytes | str | type, schemas: Schemas | None = None) -> File:
    """The file that a schema is.

    That is a registered schema, whose references are looked up in ``schemas``; a serialised FileDescriptorSet, whose last file counts, as
    protoc writes it with ``--include_imports``; .proto text; or a class generated by protoc. Instead of text a registered schema may be a
    serialised FileDescriptorProto in Base64, as confluent-kafka registers it. `ArgumentError` if it is not valid, or a reference is not
    found; `MissingError` if the package protobuf or grpcio-tools is missing.
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
    found: dict[str, str] = {}
    todo = list(schema.references)
    while todo:
        reference = todo.pop()
        if reference.name in found:
            continue
        other = None if schemas is None else schemas.version(reference.subject, reference.version)
        if other is None:
            raise ArgumentError(f"schema {schema.id} imports {reference.name!r}: {reference.subject} {reference.version} is not there")
        found[reference.name] = other.text
        todo += other.references
    return found


def _decoded(text: str, imports: dict[str, str], which: str) -> bytes:
    """A FileDescriptorSet of files in Base64; b"" if ``text`` is not one. No .proto text with a field or message is Base64."""
    try:
        files = [base64.b64decode(one.strip(), validate=True) for one in (*imports.values(), text)]
    except ValueError as error:
        if _BASE64.fullmatch(text.strip()):
            raise ArgumentError(f"schema{which} is a FileDescriptorProto, and a file that it imports is not one") from error
        return b""
    # FileDescriptorSet: each file is field 1.
    return b"".join(b"\x0a" + _length(len(one)) + one for one in files) if text.strip() else b""


def _length(size: int) -> bytes:
    made = bytearray()
    while size > 0x7F:
        made.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*made, size])


def _compiled(text: str, imports: dict[str, str], which: str) -> bytes:
    """A FileDescriptorSet of .proto text. Nothing outside of a new folder is written, and only that folder and protoc's own are read."""
    name = next(name for number in count() if (name := f"schema{number or ''}.proto") not in imports)
    with tempfile.TemporaryDirectory(prefix="kolumn-") as place:
        folder = Path(place)
        for path, content in {**imports, name: text}.items():
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
        raise MissingPackageError(
            f".proto text needs grpcio-tools, a FileDescriptorSet does not ({error}): pip install 'kolumn[protobuf]'"
        ) from error
    known = Path(protoc.__file__).parent / "_proto"
    paths = json.dumps([place for place in sys.path if place])
    command = [sys.executable, "-P", "-c", _PROGRAM, paths, f"-I{folder / 'proto'}", f"-I{known}", "--include_imports",
               f"--descriptor_set_out={folder / 'set'}", name]  # fmt: skip
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise ArgumentError(f"schema{which}: protoc took longer than {_SECONDS} s") from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").replace(f"{folder / 'proto'}/", "").strip().splitlines()
        wrong = [line for line in lines if "warning:" not in line] or lines or [f"protoc ended with {done.returncode}"]
        raise ArgumentError(f"schema{which} is not valid: {'; '.join(wrong[:5])}")


def _file(serialised: bytes, *, counts_made: bool = False) -> File:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message
    except ImportError as error:
        raise MissingPackageError(f"Protobuf schemas need the package protobuf ({error}): pip install 'kolumn[protobuf]'") from error
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(serialised).file
    except message.DecodeError as error:
        raise ArgumentError(f"these bytes are not a FileDescriptorSet: {error}") from error
    if not files:
        raise ArgumentError("these bytes are a FileDescriptorSet without files")
    pool = descriptor_pool.DescriptorPool()
    try:
        for one in _ordered([*_well_known(files), *files]):
            pool.AddSerializedFile(one.SerializeToString())
        return File(pool.FindFileByName(files[-1].name), pool, counts_made)
    except (TypeError, KeyError, ValueError) as error:
        raise ArgumentError(f"the FileDescriptorSet is not valid: {error}") from error


def _well_known(files: Iterable[Any]) -> list[Any]:
    """Files of google/protobuf that are imported and not there: nobody sends them along."""
    from google.protobuf import any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

    known = (any_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)
    wanted = {name for one in files for name in one.dependency} - {one.name for one in files}
    return [descriptor_pb2.FileDescriptorProto.FromString(one.DESCRIPTOR.serialized_pb) for one in known if one.DESCRIPTOR.name in wanted]


def _ordered(files: Iterable[Any]) -> list[Any]:
    """Files after those that they import."""
    by_name = {one.name: one for one in files}
    graph = {name: [other for other in one.dependency if other in by_name] for name, one in by_name.items()}
    try:
        return [by_name[name] for name in TopologicalSorter(graph).static_order()]
    except CycleError as error:
        raise ArgumentError(f"the FileDescriptorSet is not valid: {error.args[1][0]} imports itself") from None
