"""Protobuf values of a schema in which fields have other types: what is lost, and is the rest what the package protobuf reads?"""

import base64
import random
from typing import Any

from google.protobuf import descriptor_pb2
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kit.fuzz import examples
from kit.guarded import bodies
from kit.protobuf_values import SCALARS, body, expected, in_edition, message_class, mutants, plain, schema
from kolumn.values.protobuf import ProtobufDecoder
from kolumn.values.protobuf_schema import JSON, Shape
from kolumn.values.schemas.schema import Schema

ALIKE = [{3, 4, 5, 8, 13}, {17, 18}, {7, 15}, {6, 16}, {9, 12}]
REPEATED = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED


def versions(rng: random.Random, reader: bytes) -> tuple[bytes, bytes, set[str]]:
    """The writer's files; the reader's, in which lost fields are where no value is; and the names of these."""
    files = [descriptor_pb2.FileDescriptorSet.FromString(reader) for _ in range(2)]
    lost = set()
    for written, read in zip(*(one.file[-1].message_type for one in files), strict=True):
        for old, new in zip(written.field, read.field, strict=True):
            if old.type not in SCALARS or rng.random() < 0.6:
                continue
            old.type = rng.choice(SCALARS)
            if old.type in (9, 12):
                old.ClearField("options")
            if old.type != new.type and not any({old.type, new.type} <= alike for alike in ALIKE):
                name = f"lost_{read.name}_{new.number}"
                lost.add(name)
                # Names and numbers of their own, by which they are known again.
                old.name = new.name = name
                new.number = 300_000_000 + new.number % 100_000_000
                if new.options.features.field_presence:
                    new.options.features.ClearField("field_presence")
    return files[0].SerializeToString(), files[1].SerializeToString(), lost


def without(row: Any, lost: set[str]) -> Any:
    """A row, in which lost fields have to be null, without them."""
    if isinstance(row, dict):
        assert all(row[name] in (None, [], "", b"", 0, False, "0.0") for name in lost & row.keys())
        return {key: without(one, lost) for key, one in row.items() if key not in lost}
    return [without(one, lost) for one in row] if isinstance(row, list) else row


def shapes(shape: Shape) -> list[Shape]:
    return [shape, *(inner for part in shape.fields for inner in shapes(part))]


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 2**48), st.sampled_from([0.0, 0.2]))
def test_values_of_a_schema_with_other_types(seed: int, broken: float) -> None:
    rng = random.Random(seed)
    made = in_edition(schema(rng))
    writer, reduced, lost = versions(rng, made)
    files = descriptor_pb2.FileDescriptorSet.FromString(made)
    file = descriptor_pb2.FileDescriptorSet.FromString(writer).file[-1]
    for one, other in zip(files.file[-1].message_type, file.message_type, strict=True):
        for field, named in zip(one.field, other.field, strict=True):
            field.name = named.name
    null_fields = rng.random() < 0.7
    decoder = ProtobufDecoder(files.SerializeToString(), "M0", null_fields=null_fields)
    parts = shapes(decoder.shape)
    # JSON text is lost as a whole. Messages in each other become ten thousands of columns.
    assume(len(parts) < 2000 and not any(one.special == JSON and one.field.message_type.full_name.startswith("t.") for one in parts))
    kind, own = message_class(reduced), message_class(writer).DESCRIPTOR
    values = [body(rng, own, broken) for _ in range(10)]
    values += [one for value in values[:4] for one in mutants(rng, value, values[0], 3)] if broken else []
    text = base64.b64encode(file.SerializeToString()).decode()
    given = bodies(values, schema=[0] * len(values), schemas=[Schema("PROTOBUF", text, id=1)])
    column, valid = decoder.decode(given)
    found, problems = decoder.salvage(given)
    found.validate(full=True)
    for number, (value, one, paths) in enumerate(zip(values, found, problems, strict=True)):
        wanted = expected(kind, value)
        names = {path.rpartition(".")[2] for path in paths}
        # What is around a field that cannot be null is lost before other fields are looked at.
        assert (wanted is None) == (not names <= lost) or (not null_fields and paths), (seed, number, paths)
        if wanted is not None and (null_fields or not paths):
            assert without(plain(one), lost) == without(wanted, lost), (seed, number)
        assert not valid[number] or (plain(column[number]) == plain(one) and not paths), (seed, number)
