"""Protobuf schemas: .proto text with imports and references, sets of file descriptors, generated classes, and what is refused."""

import base64
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from kit.protobuf_values import message_class
from kolumn.core.errors import ArgumentError, MissingError
from kolumn.values import protobuf_schema as module
from kolumn.values.protobuf_schema import Place, file_of
from kolumn.values.schemas.schema import Reference, Schema

TEXT = 'syntax = "proto3"; package a; message A { message B { message C {} } message D {} } message Z {}'


class Subjects:
    def __init__(self, **texts: Schema) -> None:
        self.texts = texts

    def version(self, subject: str, version: int) -> Schema | None:
        return self.texts.get(f"{subject}{version}")


def test_messages_by_name_and_place() -> None:
    file = file_of(TEXT)
    assert file.message("a.A.D").full_name == file.message("A.D").full_name == "a.A.D"
    assert file.places() == {
        "a.A": Place((0,), 0, ("a.A", "A")), "a.A.B": Place((0, 0), 1, ("a.A.B", "B")), "a.A.B.C": Place((0, 0, 0), 2, ("a.A.B.C", "C")),
        "a.A.D": Place((0, 1), 3, ("a.A.D", "D")), "a.Z": Place((1,), 4, ("a.Z", "Z")),
    }  # fmt: skip
    with pytest.raises(ArgumentError, match=r"has no message 'Q': it has a\.A, a\.Z"):
        file.message("Q")
    with pytest.raises(ArgumentError, match=r"name the message of schema\.proto: it has a\.A, a\.Z"):
        file.message(None)
    assert file_of('syntax = "proto3"; message One { message Two {} }').message(None).full_name == "One"


def test_what_has_an_index_and_a_short_name() -> None:
    """Entries of maps and groups have no index. Apicurio's serializers write the last part of a name: it means no inner message."""
    text = 'syntax = "proto2"; message A { map<int32, B> m = 1; optional group G = 2 { optional int32 x = 1; } message B {} }'
    assert file_of(text).places() == {"A": Place((0,), 0, ("A", "A")), "A.B": Place((0, 0), 1, ("A.B", "B"))}
    text = 'syntax = "proto3"; package p; message A { message B {} message C {} } message B { message C {} }'
    names = {name: place.names for name, place in file_of(text).places().items()}
    assert names == {"p.A": ("p.A", "A"), "p.A.B": ("p.A.B",), "p.A.C": ("p.A.C",), "p.B": ("p.B", "B"), "p.B.C": ("p.B.C",)}


def test_references_are_written_where_they_are_imported() -> None:
    money = Schema("PROTOBUF", 'syntax = "proto3"; package m; import "units.proto"; message Money { units.Unit unit = 1; }',
                   (Reference("units.proto", "units", 1),))  # fmt: skip
    units = Schema("PROTOBUF", 'syntax = "proto3"; package units; message Unit { string name = 1; }')
    text = 'syntax = "proto3"; import "deep/money.proto"; message Pay { m.Money money = 1; }'
    pay = Schema("PROTOBUF", text, (Reference("deep/money.proto", "money", 3),), id=7)
    schemas = Subjects(money3=money, units1=units)
    found = file_of(pay, schemas)
    assert (found.message(None).fields[0].message_type.fields[0].message_type.full_name, list(found.places())) == ("units.Unit", ["Pay"])
    with pytest.raises(ArgumentError, match=r"schema 7 imports 'deep/money\.proto': money 3 is not there"):
        file_of(pay)
    with pytest.raises(ArgumentError, match=r"imports 'units\.proto': units 1 is not there"):
        file_of(pay, Subjects(money3=money))


def test_descriptors_in_base64_with_imports() -> None:
    """Imports of google/protobuf are nobody's references."""
    main = descriptor_pb2.FileDescriptorProto(name="main.proto", dependency=["other.proto", "google/protobuf/timestamp.proto"])
    message = main.message_type.add(name="A")
    message.field.add(name="b", number=1, type=11, label=1, type_name=".B")
    message.field.add(name="t", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    other = descriptor_pb2.FileDescriptorProto(name="other.proto")
    other.message_type.add(name="B")
    texts = [base64.b64encode(one.SerializeToString()).decode() for one in (main, other)]
    schema = Schema("PROTOBUF", texts[0], (Reference("other.proto", "other", 1),))
    file = file_of(schema, Subjects(other1=Schema("PROTOBUF", texts[1])))
    assert [field.message_type.full_name for field in file.message(None).fields] == ["B", "google.protobuf.Timestamp"]
    with pytest.raises(ArgumentError, match="a file that it imports is not one"):
        file_of(schema, Subjects(other1=Schema("PROTOBUF", "syntax = ...")))


@pytest.mark.parametrize("name", ["/tmp/out.proto", "../out.proto", "a/../../out.proto", "a\\b.proto", "", "."])
def test_names_of_references_that_lead_elsewhere_are_refused(name: str) -> None:
    other = Schema("PROTOBUF", 'syntax = "proto3"; message X {}')
    with pytest.raises(ArgumentError, match="cannot be the name of an imported file"):
        file_of(Schema("PROTOBUF", TEXT, (Reference(name, "x", 1),)), Subjects(x1=other))


def test_files_outside_are_not_imported_and_errors_name_the_line_and_no_folder(tmp_path: Path) -> None:
    (tmp_path / "other.proto").write_text('syntax = "proto3"; message X {}')
    with pytest.raises(ArgumentError, match="is not valid"):
        file_of(f'syntax = "proto3"; import "{tmp_path}/other.proto"; message A {{ X x = 1; }}')
    with pytest.raises(ArgumentError, match=r"^schema 9 is not valid: schema\.proto:2:\d+: "):
        file_of(Schema("PROTOBUF", 'syntax = "proto3";\nmessage A { strin x = 1; }', id=9))
    with pytest.raises(ArgumentError, match="schema 3 is of type AVRO, not PROTOBUF"):
        file_of(Schema("AVRO", '"int"', id=3))


def test_sets_of_file_descriptors() -> None:
    files = descriptor_pb2.FileDescriptorSet()
    main = files.file.add(name="main.proto", dependency=["other.proto"])
    main.message_type.add(name="A").field.add(name="b", number=1, type=11, label=1, type_name=".B")
    files.file.insert(0, descriptor_pb2.FileDescriptorProto(name="other.proto"))
    files.file[0].message_type.add(name="B")
    assert file_of(files.SerializeToString()).message(None).full_name == "A"
    turned = descriptor_pb2.FileDescriptorSet(file=[files.file[1], files.file[0]])
    assert file_of(turned.SerializeToString()).message("A").full_name == "A"
    for wrong, said in [(b"abc", "not a FileDescriptorSet"), (b"", "without files"),
                        (descriptor_pb2.FileDescriptorSet(file=[main]).SerializeToString(), "is not valid")]:  # fmt: skip
        with pytest.raises(ArgumentError, match=said):
            file_of(wrong)
    files.file[0].dependency.append("main.proto")
    with pytest.raises(ArgumentError, match="imports itself"):
        file_of(files.SerializeToString())


def test_generated_classes() -> None:
    assert file_of(timestamp_pb2.Timestamp).message("google.protobuf.Timestamp").full_name == "google.protobuf.Timestamp"
    assert file_of(message_class(file_of_bytes())).message(None).full_name == "t.M0"
    with pytest.raises(ArgumentError, match="not <class 'int'>"):
        file_of(int)


def file_of_bytes() -> bytes:
    files = descriptor_pb2.FileDescriptorSet()
    files.file.add(name="one.proto", package="t").message_type.add(name="M0")
    return files.SerializeToString()


@pytest.mark.parametrize(("package", "schema"), [("google.protobuf", file_of_bytes()), ("grpc_tools", TEXT)])
def test_missing_packages_are_named(package: str, schema: bytes | str) -> None:
    program = f"""
import sys
sys.modules[{package!r}] = None
from kolumn.core.errors import MissingError
from kolumn.values.protobuf_schema import file_of
try:
    file_of({schema!r})
except MissingError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "pip install 'kolumn[protobuf]'" in done.stdout
    assert issubclass(MissingError, Exception)


def test_protoc_that_hangs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SECONDS", 0.001)
    with pytest.raises(ArgumentError, match="protoc took longer"):
        file_of(TEXT)


def test_modules_of_the_callers_path_do_not_replace_protocs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "importlib.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert file_of(TEXT).message("Z").name == "Z"
