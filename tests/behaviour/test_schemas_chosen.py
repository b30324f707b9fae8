"""Which schema a read takes of a topic `_schemas`: deleted ones, contexts, aliases, moments, and Confluent's names of subjects."""

import json
import logging
import random
from pathlib import Path
from typing import Any

import pytest

import kolumn
from kit.outcome import raises
from kit.schemas_topic import delete_subject, framed, gone, id_of, packed, topic, version, write, write_values
from kolumn.core.errors import ArgumentError
from kolumn.readers.schemas import schemas_of
from kolumn.values.schemas.collections import ListedSchemas
from kolumn.values.schemas.schema import Reference, Registered, Schema
from kolumn.values.schemas.subjects import Naming, context_of, qualified

CLEAR = packed({"keytype": "CLEAR_SUBJECT", "subject": "o-value", "magic": 0}), packed({"subject": "o-value"})
NOON = 1_700_000_000_000


def record(name: str, *fields: str, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": "long"} for field in fields], **more}


def text(*of: str, **more: Any) -> str:
    return json.dumps(record(*of, **more))


def read(folder: Path, **how: Any) -> list[Any]:
    found: list[Any] = kolumn.read(folder, columns=["value"], **{"value_format": "registry", **how})["value"].to_pylist()
    return found


def refused(folder: Path, said: str, **how: Any) -> str:
    return str(raises(ArgumentError, said, read, folder, **how))


def config(subject: str | None, value: dict[str, Any] | None) -> tuple[bytes, bytes | None]:
    return packed({"keytype": "CONFIG", "subject": subject, "magic": 0}), None if value is None else packed(value)


AB, A = record("R", "a", "b"), record("R", "a")
DELETED = {
    "versions": [version("o-value", 1, 1, json.dumps(A), deleted=True), version("o-value", 2, 2, json.dumps(AB), deleted=True)],
    "subject": [version("o-value", 1, 1, json.dumps(A)), version("o-value", 2, 2, json.dumps(AB)), delete_subject("o-value", 2)],
}
DELETED["for good"] = [*DELETED["versions"], gone("o-value", 1), gone("o-value", 2)]
DELETED["cleared"] = [*DELETED["subject"], CLEAR]
DELETED["both"] = [*DELETED["versions"], version("o-value", 3, 3, text("R", "c")), gone("o-value", 3)]


def test_a_caller_names_a_subject(tmp_path: Path) -> None:
    write(tmp_path / "_schemas-0", [version("ns.A", 1, 1, json.dumps(A)), version("ns.B", 1, 2, text("B", "x"))])
    write_values(tmp_path / "o-0", [framed(1, A, {"a": 1}), framed(2, record("B", "x"), {"x": 2})])
    said = refused(tmp_path / "o-0", "of ns.A, ns.B: name a schema in value_schema")
    assert read(tmp_path / "o-0", value_schema="ns.A") == [{"a": 1}, {"a": None}], said
    assert read(tmp_path / "o-0", value_schema="ns.B", value_errors="keep") == [None, {"x": 2}]
    refused(tmp_path / "o-0", "value_schema='ns.C': neither a schema nor a subject in value_schemas", value_schema="ns.C")


@pytest.mark.parametrize("how", DELETED)
def test_a_subject_without_a_live_version_has_a_type(tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture) -> None:
    """The newest one that a registry still has; and one line says so."""
    write(tmp_path / "_schemas-0", DELETED[how])
    write_values(tmp_path / "o-0", [framed(1, A, {"a": 1}), framed(2, AB, {"a": 2, "b": 3})])
    given = {"value_schema": json.dumps({**AB, "fields": [{"name": "a", "type": "long"}]})}
    assert read(tmp_path / "o-0", **given) == [{"a": 1}, {"a": 2}]
    with caplog.at_level(logging.WARNING, "kolumn"):
        caplog.clear()
        found = read(tmp_path / "o-0")
    assert found == [{"a": 1, "b": None}, {"a": 2, "b": 3}]
    told = [one.getMessage() for one in caplog.records if "deleted" in one.getMessage()]
    only = ", which only its record still has" if how in ("for good", "cleared") else ""
    assert told == [f"all versions of o-value are deleted: the newest of them, version 2 of o-value{only}, is taken"]


def test_a_live_version_is_newer_than_any_deleted_one(tmp_path: Path) -> None:
    found = topic(tmp_path, *DELETED["for good"], version("o-value", 1, 7, '"int"'))
    assert (id_of(found.newest("o-value")), id_of(found.version("o-value", 1)), id_of(found.by_id(1))) == (7, 7, 1)
    assert [(one.version, one.schema.id, one.is_gone) for one in found.registered()] == [(1, 1, True), (1, 7, False), (2, 2, True)]


def test_versions_that_were_written_again(tmp_path: Path) -> None:
    """A version that came back is there once; one that was replaced by another schema is known by its id."""
    one, other = version("s", 1, 1, '"int"'), version("s", 1, 2, '"long"')
    found = topic(tmp_path, one, gone("s", 1), one, gone("s", 1), one)
    assert [(own.schema.id, own.is_deleted) for own in found.registered()] == [(1, False)]
    ruled = version("s", 1, 1, '"int"', ruleSet={"domainRules": [{"name": "r"}]})
    assert len(list(topic(tmp_path / "3", one, ruled).registered())) == 1
    found = topic(tmp_path / "2", one, other)
    assert [(own.schema.id, own.is_gone) for own in found.registered()] == [(1, True), (2, False)]
    assert (id_of(found.newest("s")), found.by_id(1).text) == (2, '"int"')


def test_an_id_that_was_given_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The live schema counts, but not for values whose subject had the id before."""
    found = topic(tmp_path, version("a-value", 1, 1, '"int"'), gone("a-value", 1), version("b-value", 1, 1, '"long"'))
    with caplog.at_level(logging.WARNING, "kolumn"):
        assert [found.by_id(1).text for _ in range(2)] == ['"long"'] * 2
    said = "version 1 of b-value counts, not that of version 1 of a-value, which only its record still has"
    assert [one.getMessage() for one in caplog.records] == [f"several schemas have the id 1: that of {said}"]
    for topics, right in ((("a",), '"int"'), (("b",), '"long"'), (("c",), '"long"'), ((), '"long"')):
        assert found.within(Naming("topic", "value", topics)).by_id(1).text == right
    twice = topic(tmp_path / "2", *(one for name in ("int", "long") for one in (version("s", 1, 1, f'"{name}"'), gone("s", 1))))
    assert twice.by_id(1).text == twice.newest("s").text == '"long"'


def test_references_to_deleted_versions(tmp_path: Path) -> None:
    inner, used = record("in.I", "x"), [{"name": "in.I", "subject": "inner", "version": 1}]
    outer = {"type": "record", "name": "O", "fields": [{"name": "i", "type": "in.I"}]}
    first = version("inner", 1, 1, json.dumps(inner)), version("o-value", 1, 2, json.dumps(outer), references=used)
    whole = json.loads(json.dumps(outer).replace('"in.I"', json.dumps(inner)))
    deletions = [version("inner", 1, 1, json.dumps(inner), deleted=True)], [delete_subject("inner", 1), gone("inner", 1)]
    for number, after in enumerate(deletions):
        write(tmp_path / f"{number}" / "_schemas-0", [*first, *after])
        write_values(tmp_path / f"{number}" / "o-0", [framed(2, whole, {"i": {"x": 5}})])
        assert read(tmp_path / f"{number}" / "o-0") == [{"i": {"x": 5}}]


@pytest.mark.parametrize("seed", range(30))
def test_any_history(tmp_path: Path, seed: int) -> None:
    """What a registry would have, and every schema that it ever had. A registry gives a new id to a new text."""
    rng, records, now, ever, deleted = random.Random(seed), [], {}, {}, set()
    for number in range(rng.randrange(1, 30)):
        key = rng.choice(("s", "t")), rng.randrange(1, 4)
        own = {other for other in now if other[0] == key[0]}
        what = rng.choice(("put", "put", "put", "soft", "soft", "gone", "subject", "clear"))
        if what == "put" or (what == "soft" and key in now):
            now[key] = now[key] if what == "soft" or (key in now and rng.random() < 0.5) else number + 1
            ever[now[key]] = key[0]
            records.append(version(*key, now[key], f'"{now[key]}"', deleted=what == "soft"))
            deleted = deleted | {key} if what == "soft" else deleted - {key}
        elif what == "gone":
            records.append(gone(*key))
            now.pop(key, None)
        elif what == "subject":
            records.append(delete_subject(*key))
            deleted |= {other for other in own if other[1] <= key[1]}
        elif what == "clear":
            records.append((packed({"keytype": "CLEAR_SUBJECT", "subject": key[0]}), packed({"subject": key[0]})))
            now = {other: id for other, id in now.items() if other not in own & deleted}
    if not ever:
        return
    found = topic(tmp_path, *records)
    assert found.malformed == 0
    there = {(one.subject, one.version): (one.schema.id, one.is_deleted) for one in found.registered() if not one.is_gone}
    assert there == {key: (id, key in deleted) for key, id in now.items()}
    assert [found.by_id(id).text for id in ever] == [f'"{id}"' for id in ever]
    for subject in {*ever.values()}:
        live = [key for key in now if key[0] == subject and key not in deleted]
        soft = [key for key in now if key[0] == subject]
        right = max(live or soft, default=None)
        assert id_of(found.newest(subject)) == now[right] if right else found.newest(subject) is not None


# Contexts.


def by_registry(entries: list[Registered], id: int, subject: str) -> Schema | None:
    """What Confluent's registry answers a deserializer: ``getSchemaKeyUsingContexts`` of its ``AbstractSchemaRegistry``."""
    versions = {(context_of(one.subject)[0], context_of(one.subject)[1]): one for one in entries if one.schema.id == id}
    for context in sorted({context for context, _ in versions} | {""}):
        if (context, subject) in versions:
            return versions[context, subject].schema
    return next((one.schema for (context, _), one in versions.items() if context == ""), None)


@pytest.mark.parametrize("seed", range(40))
def test_ids_mean_what_a_registry_says(seed: int) -> None:
    """Where it says something, and the topic's subject is in the default context, or the id is one of the topic's."""
    rng, entries, names = random.Random(seed), {}, ("t-value", "u-value", "rec")
    for _ in range(rng.randrange(12)):
        context, name, id = rng.choice(("", "a", "b")), rng.choice(names), rng.randrange(1, 4)
        # A context has one schema for an id.
        schema = Schema("AVRO", f'"{context}{id}"', id=id)
        entries[context, name, id] = Registered(qualified(context, name), id, schema, is_deleted=rng.random() < 0.3)
    all = list(entries.values())
    found = ListedSchemas(rng.sample(all, len(all))).within(Naming("topic", "value", ("t",)))
    contexts = {context for context, name, _ in entries if name == "t-value"}
    for id in range(1, 4):
        right = by_registry(all, id, "t-value")
        if right is not None and ("" in contexts or not contexts or any((context, "t-value", id) in entries for context in contexts)):
            assert found.by_id(id) == right


def test_the_context_of_a_topic(tmp_path: Path) -> None:
    """Its subject says it, also for ids of other subjects there."""
    records = [
        version("x-value", 1, 1, text("X", "x")), version(":.c:o-value", 1, 1, json.dumps(AB)), version(":.c:R", 1, 2, json.dumps(A)),
        version("x-value", 2, 2, text("X", "x", "y")),
    ]  # fmt: skip
    write(tmp_path / "_schemas-0", records)
    write_values(tmp_path / "o-0", [framed(1, AB, {"a": 1, "b": 2}), framed(2, A, {"a": 3})])
    write_values(tmp_path / "x-0", [framed(1, record("X", "x"), {"x": 5})])
    only_a = json.dumps(A)
    assert read(tmp_path / "o-0", value_schema=only_a) == [{"a": 1}, {"a": 3}]
    assert read(tmp_path / "x-0", value_schema=text("X", "x")) == [{"x": 5}]
    # As at the end of a registry's URL.
    chosen = schemas_of(tmp_path / "contexts" / ".c")
    assert [(one.subject, one.schema.id) for one in chosen.registered()] == [("R", 2), ("o-value", 1)]
    assert schemas_of(tmp_path / "_schemas-0/contexts/:.c:/").by_id(2) == chosen.by_id(2)
    assert [one.subject for one in schemas_of(f"{tmp_path}/contexts/.").registered()] == ["x-value", "x-value"]
    raises(ArgumentError, r"no context \.d: it has \., \.c", schemas_of, tmp_path / "contexts" / ".d")
    (tmp_path / "files").mkdir()
    raises(ArgumentError, "contexts are those of a topic", schemas_of, tmp_path / "files" / "contexts" / ".c")
    raises(ArgumentError, "no such file", schemas_of, tmp_path / "no" / "contexts" / ".c")


def test_a_subject_in_several_contexts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path / "_schemas-0", [version(":.c:o-value", 1, 1, json.dumps(A)), version(":.d:o-value", 1, 1, json.dumps(AB))])
    write_values(tmp_path / "o-0", [framed(1, AB, {"a": 1, "b": 2})])
    said = refused(
        tmp_path / "o-0", r"o-value has other schemas in the contexts \.c, \.d: name one by .*value_schemas='…/_schemas-0/contexts/\.c'"
    )
    assert "no subject" not in said
    listed = schemas_of(tmp_path)
    assert isinstance(listed, ListedSchemas)
    near = listed.within(Naming("topic", "value", ("o",)))
    with caplog.at_level(logging.WARNING, "kolumn"):
        assert near.by_id(1).text == json.dumps(A)
    # Contexts that agree are no question.
    deleted = version(":.d:p-value", 2, 4, '"int"', deleted=True), version(":.e:p-value", 1, 1, '"long"', deleted=True)
    linked = version(":.c:p-value", 1, 2), version(":.d:p-value", 1, 3), *deleted
    assert id_of(topic(tmp_path / "2", *linked).newest("p-value")) == 2
    assert "that of version 1 of :.c:o-value counts, not that of version 1 of :.d:o-value" in caplog.text
    assert read(tmp_path / "o-0", value_schemas=tmp_path / "_schemas-0" / "contexts" / ".d") == [{"a": 1, "b": 2}]


def test_references_within_a_context(tmp_path: Path) -> None:
    """A subject that is named without a context is one of the context of the schema that names it."""
    used = [
        {"name": "I", "subject": "inner", "version": 1},
        {"name": "J", "subject": ":.d:j", "version": 1},
        {"name": "K", "subject": "k", "version": 1},
    ]
    found = topic(
        tmp_path, version("inner", 1, 1, '"int"'), version(":.c:inner", 1, 1, '"long"'), version(":.c:o", 1, 2, '"bytes"', references=used),
        version("k", 1, 3, '"float"'), version(":.d:j", 1, 1, '"double"'),
    )  # fmt: skip
    references = found.newest("o").references
    assert references == (Reference("I", ":.c:inner", 1), Reference("J", ":.d:j", 1), Reference("K", "k", 1))
    assert [found.version(one.subject, one.version).text for one in references] == ['"long"', '"double"', '"float"']
    (reference, *_) = schemas_of(tmp_path / "contexts" / ".c").newest("o").references
    assert reference == Reference("I", "inner", 1)


def test_aliases(tmp_path: Path) -> None:
    """One step, also for the ids of values, and within the context of the subject; a later configuration replaces it."""
    records = [
        version("b-value", 1, 1, json.dumps(AB)), version(":.c:d", 1, 1, '"int"'), version("a-value", 1, 9, '"string"'),
        config(None, {"alias": "x"}), config("a-value", {"subject": "a-value", "alias": "b-value", "compatibilityLevel": "FULL"}),
        config(":.c:e", {"alias": "d"}), config("f", {"alias": "a-value"}), config("g", {"alias": "b-value"}), config("g", {}),
        config("h", {"alias": "b-value"}), config("h", None), config("i", {"alias": 3}),
    ]  # fmt: skip
    found = topic(tmp_path, *records)
    assert (found.malformed, found.aliases) == (0, {"a-value": "b-value", ":.c:e": ":.c:d", "f": "a-value"})
    assert [id_of(found.newest(name)) for name in ("a-value", "b-value", "f", "g", "h")] == [1, 1, 9, None, None]
    assert found.newest(":.c:e").text == found.newest("e").text == found.within(Naming("topic-record", "value", ("d",))).newest("e").text
    assert found.version("a-value", 1).text == '"string"'
    write_values(tmp_path / "a-0", [framed(1, AB, {"a": 1, "b": 2})])
    assert read(tmp_path / "a-0") == [{"a": 1, "b": 2}]


# Moments.


def test_schemas_as_of_a_moment(tmp_path: Path) -> None:
    records = [
        version("o-value", 1, 1, json.dumps(A)),
        version("o-value", 2, 2, json.dumps(AB)),
        delete_subject("o-value", 2),
        version("o-value", 3, 3, text("R", "c")),
    ]
    write(tmp_path / "_schemas-0", records, [NOON, NOON + 1000, NOON + 2000, NOON + 3000])
    write_values(tmp_path / "o-0", [framed(1, A, {"a": 1})])
    for as_of, right in ((NOON, {"a": 1}), (NOON + 999, {"a": 1}), (str(NOON), {"a": 1}), ("2023-11-14T22:13:20.000", {"a": 1})):
        assert read(tmp_path / "o-0", value_as_of=as_of) == [right]
    later = kolumn.scan(tmp_path / "o-0", value_format="registry", value_as_of=NOON + 1000).schema.field("value").type
    assert [field.name for field in later] == ["a", "b"]
    assert [one.is_deleted for one in schemas_of(tmp_path, as_of=NOON + 2000).registered()] == [True, True]
    assert len(list(schemas_of(tmp_path, as_of=NOON + 4000).registered())) == 3
    where = rf"{tmp_path}/_schemas-0: no schemas as of 2023-11-14 22:13:19\.999Z: its first record is of 2023-11-14 22:13:20\.000Z"
    refused(tmp_path / "o-0", where, value_as_of=NOON - 1)
    refused(tmp_path / "o-0", "value_as_of='noon': expected", value_as_of="noon")
    other = {1: json.dumps(A)}
    for given in (other, other.get, schemas_of(other), schemas_of(tmp_path)):
        refused(
            tmp_path / "o-0", "as_of: only a topic _schemas on disk has the times of its schemas", value_as_of=NOON, value_schemas=given
        )
    refused(tmp_path / "o-0", "value_as_of goes with value_schemas", value_as_of=NOON, value_format="avro", value_schema=json.dumps(A))


# Names of subjects.


def topics(tmp_path: Path) -> Path:
    payment, refund = record("Payment", "a", namespace="pay"), record("pay.Refund", "b")
    newer = record("Payment", "a", namespace="pay")
    newer["fields"].append({"name": "n", "type": "long", "default": 7})
    records = [
        version("pay.Payment", 1, 1, json.dumps(payment)), version("pay.Refund", 1, 2, json.dumps(refund)),
        version("pay.Payment", 2, 3, json.dumps(newer)), version("o-pay.Payment", 1, 1, json.dumps(payment)),
        version("o-value", 1, 9, '"string"'), version("J", 1, 4, '{"title":"J","properties":{"x":{"type":"integer"}}}', schemaType="JSON"),
        version("j2", 1, 5, '{"properties":{"x":{"type":"integer"}}}', schemaType="JSON"), version("p-key", 1, 6, '"long"'),
        version("K", 1, 7, '{"title":"K","properties":{"y":{"type":"integer"}}}', schemaType="JSON"),
    ]  # fmt: skip
    write(tmp_path / "_schemas-0", records)
    write_values(tmp_path / "o-0", [framed(1, payment, {"a": 1})])
    write_values(tmp_path / "p-0", [framed(1, payment, {"a": 1}), framed(2, refund, {"b": 2})])
    write_values(tmp_path / "j-0", [b"\0\0\0\0\4" + b'{"x":5}'])
    write_values(tmp_path / "k-0", [b"\0\0\0\0\5" + b'{"x":5}'])
    write_values(tmp_path / "both-0", [b"\0\0\0\0\4" + b'{"x":5}', b"\0\0\0\0\7" + b'{"y":6}'])
    write_values(tmp_path / "bare-0", [b"x"])
    return tmp_path


def test_subjects_by_strategy(tmp_path: Path) -> None:
    folder = topics(tmp_path)
    assert read(folder / "o-0", value_subject="record") == [{"a": 1, "n": 7}]
    assert read(folder / "o-0", value_subject="topic-record") == [{"a": 1}]
    assert kolumn.scan(folder / "o-0", value_format="registry").schema.field("value").type == "string"
    assert read(folder / "j-0", value_subject="record") == [{"x": 5}]
    assert read(folder / "p-0", value_schema=text("pay.Payment", "a")) == [{"a": 1}, {"a": None}]
    known = {1: text("pay.Payment", "a")}
    assert read(folder / "o-0", value_subject="record", value_schemas=known.get) == [{"a": 1}]


def test_strategies_that_lead_nowhere(tmp_path: Path) -> None:
    """Each message says what was looked for, what is there and what helps."""
    folder = topics(tmp_path)
    several = (
        "are of several records, pay.Payment, pay.Refund: name the schema of one of them in value_schema, values of the others are null"
    )
    refused(folder / "p-0", f"value_subject='record': the first values {several}", value_subject="record")
    # Of JSON nothing is lost: a member that is not there is null.
    several = "of several records, J, K: name the schema of one of them in value_schema, members that values of the others lack are null"
    refused(folder / "both-0", f"the first values are {several} then", value_subject="record")
    assert read(folder / "both-0", value_schema="J") == [{"x": 5}, {"x": None}]
    said = "value_subject='topic-record': no subject p-pay.Payment or p-pay.Refund in value_schemas: name a schema in value_schema"
    refused(folder / "p-0", said, value_subject="topic-record")
    refused(folder / "bare-0", "none of the first values names a schema in value_schemas: name one in value_schema", value_subject="record")
    refused(folder / "k-0", "the schemas of the first values name no record, message or title", value_subject="record")
    refused(folder / "o-0", "value_subject='table': expected one of topic, record, topic-record", value_subject="table")
    refused(
        folder / "j-0", "value_subject goes with value_schemas", value_subject="record", value_format="json", value_schema={"x": "int64"}
    )


PROTO = 'syntax = "proto3"; package p; message A { int64 a = 1; message In { int64 i = 1; } } message B { int64 b = 1; }'


def test_subjects_of_messages(tmp_path: Path) -> None:
    """A schema has several; one whose subject is there counts, or the caller's choice."""
    pytest.importorskip("google.protobuf", reason="kolumn[protobuf] has it")
    write(tmp_path / "1" / "_schemas-0", [version("p.B", 1, 1, PROTO, schemaType="PROTOBUF")])
    write(tmp_path / "2" / "_schemas-0", [version(f"o-p.{name}", 1, 1, PROTO, schemaType="PROTOBUF") for name in ("A", "B", "A.In")])
    for folder in (tmp_path / "1", tmp_path / "2"):
        write_values(folder / "o-0", [b"\0\0\0\0\1" + b"\2\2" + b"\x08\5"])
    assert read(tmp_path / "1" / "o-0", value_subject="record", value_message="p.B") == [{"b": 5}]
    assert read(tmp_path / "2" / "o-0", value_subject="topic-record", value_message="B") == [{"b": 5}]
    # The values say it.
    assert read(tmp_path / "1" / "o-0", value_subject="record") == [{"b": 5}]
    said = refused(tmp_path / "2" / "o-0", "or a message in value_message; values of the others are null", value_subject="topic-record")
    assert all(name in said for name in ("p.A", "p.B", "p.A.In"))


# What is said if the names of topics lead to no schema.


def test_messages_do_not_contradict_themselves(tmp_path: Path) -> None:
    folder = topics(tmp_path)
    for name, said in (
        ("p-0", "no subject p-value in value_schemas, and the first values have schemas of o-pay.Payment, pay.Payment, pay.Refund: name a"),
        ("bare-0", "no subject bare-value in value_schemas, and none of the first values names a schema that is there: name a schema in"),
    ):
        refused(folder / name, said)
    mixed = {"o-value": text("pay.Payment", "a"), 1: text("pay.Payment", "a"), 2: text("pay.Refund", "b")}
    said = "no subject p-value in value_schemas, and the first values have schemas of o-value: name a schema in value_schema"
    refused(folder / "p-0", said, value_schemas=mixed)
    refused(folder / "p-0", "have schemas without a subject, 1, 2: name", value_schemas={"x": '"int"', 1: mixed[1], 2: mixed[2]})
    # A subject without a live version counts if no other fits.
    for number, deleted in enumerate((False, True)):
        own = tmp_path / f"{number}"
        write(
            own / "_schemas-0",
            [
                version("one", 1, 1, json.dumps(A), deleted=True),
                version("two", 1, 1, json.dumps(A), deleted=deleted),
                version("two", 2, 2, json.dumps(AB), deleted=deleted),
            ],
        )
        write_values(own / "z-0", [framed(1, A, {"a": 1})])
        if deleted:
            refused(own / "z-0", "no subject z-value in value_schemas, and the first values have schemas of one, two")
        else:
            assert [field.name for field in kolumn.scan(own / "z-0", value_format="registry").schema.field("value").type] == ["a", "b"]


@pytest.mark.parametrize(
    ("newest", "said"),
    [
        ("{", "its text is not JSON"), (text("R", "b").replace("long", "Long"), "'Long' is not defined"),
        ({"references": [{"name": "X", "subject": "x", "version": 1}]}, "the reference 'X' .* is not among the schemas"),
    ],
)  # fmt: skip
def test_the_newest_schema_cannot_be_read(tmp_path: Path, newest: Any, said: str) -> None:
    """The error says what helps; with it older values are read, and others are lost alone."""
    broken = version("o-value", 2, 2, text("R", "b"), **newest) if isinstance(newest, dict) else version("o-value", 2, 2, newest)
    write(tmp_path / "_schemas-0", [version("o-value", 1, 1, json.dumps(A)), broken])
    write_values(tmp_path / "o-0", [framed(1, A, {"a": 1}), framed(2, A, {"a": 2})])
    advice = r"so give an older one in value_schema \(kolumn schemas --id prints it\), or its time in value_as_of"
    for how in ({}, {"value_columns": "a"}, {"value_envelope": "auto"}):
        refused(tmp_path / "o-0", f"Avro schema 2: .*{said}.*: it is the newest one of its subject, {advice}", **how)
    assert read(tmp_path / "o-0", value_schema=json.dumps(A)) == [{"a": 1}, None]
    write(tmp_path / "good" / "_schemas-0", [version("o-value", 1, 1, json.dumps(A))])
    write_values(tmp_path / "good" / "o-0", [framed(1, A, {"a": 1})])
    assert "newest" not in refused(tmp_path / "good" / "o-0", "column b is not in the Avro schema", value_columns="b")
