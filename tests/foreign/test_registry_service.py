"""A registry that answers wrongly, late or never: a clear error without credentials, or values that are not valid."""

import json
import logging
import pickle
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient

import kolumn
from kolumn.values.schemas import collections as service
from kolumn.values.schemas.collections import ServiceSchemas
from kolumn.values.schemas.schema import UnreadableSchemasError
from kolumn.values.schemas.subjects import Naming

A = '{"type":"record","name":"A","fields":[{"name":"b","type":["null","B"]}]}'
B = '{"type":"record","name":"B","fields":[{"name":"a","type":["null","A"]}]}'
CYCLES = {
    name: {"schema": text, "references": [{"name": other, "subject": other, "version": 1}]}
    for name, other, text in (("A", "B", A), ("B", "A", B))
}
PROTO = 'syntax = "proto3"; message M { int32 a = 1; }'
ANSWERS: dict[int, Any] = {
    1: {"schema": '{"type":"record","name":"O","fields":[{"name":"id","type":"long"}]}'}, 2: b"no JSON", 3: [1, 2],
    4: {"schema": "x", "schemaType": "XML"}, 5: {"schema": 5}, 6: {}, 7: b'{"schema":"\\ud800"}',
    8: {"schema": '"int"', "references": [{"name": "x"}]}, 9: CYCLES["A"], 10: {"schema": "message {", "schemaType": "PROTOBUF"},
    11: b"[" * 100_000, 12: {"schema": '"int"'}, 13: {"schema": '"long"'},
}  # fmt: skip


BY_SUBJECT: dict[tuple[str, str], Any] = {("12", "ctx-value"): {"schema": '"bytes"'}, ("13", "no-value"): None}
"""Answers to an id with a subject, which may be in another context; None is 404."""
DEAD = {"versions": [1, 3], "1": {"subject": "dead-value", "version": 1, "id": 12, "schema": '"int"'},
        "3": {"subject": "dead-value", "version": 3, "id": 13, "schema": '"long"'}}  # fmt: skip
"""All versions of this subject are deleted."""
PIECES = {"98": b"[" * 65536, "97": b" ", "96": b"X"}
"""What is answered again and again; of 96 in the headers."""


class Registry(BaseHTTPRequestHandler):
    """Ids above 299 are the status of the answer; 99 is never answered, 98 without end, and 97 and 96 a byte at a time."""

    asked: ClassVar[Counter[str]] = Counter()
    dropped: ClassVar[Counter[str]] = Counter()
    ended: ClassVar[threading.Event] = threading.Event()

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self.asked[path] += 1
        last = path.rpartition("/")[2]
        by_subject = last, dict(parse_qsl(query)).get("subject", "")
        if by_subject in BY_SUBJECT:
            given = BY_SUBJECT[by_subject]
            return self._answer(200 if given else 404, given or {"error_code": 40403, "message": "Schema not found"})
        if path == "/subjects":
            return self._answer(200, ["dead-value"] if "deleted=true" in query else [])
        if path.startswith("/subjects/dead-value/"):
            is_there = last in DEAD and "deleted=true" in query
            return self._answer(200 if is_there else 404, DEAD[last] if is_there else {"error_code": 40401, "message": "Subject not found"})
        if path.startswith("/subjects/"):
            name = path.split("/")[2]
            return self._answer(200, {"subject": name, "version": 1, "id": 9, **CYCLES[name]} if name in CYCLES else {})
        if last == "99":
            self.ended.wait(60)
            return None
        if last in PIECES:
            return self._forever(PIECES[last])
        if int(last) > 299:
            return self._answer(int(last), {"error_code": int(last), "message": f"given {self.headers['Authorization']}" + "x" * 5000})
        return self._answer(200, ANSWERS[int(last)])

    def _forever(self, piece: bytes) -> None:
        self.wfile.write(b"HTTP/1.0 200 OK\r\n" + (b"\r\n" if piece != b"X" else b""))
        while not self.ended.wait(0 if len(piece) > 1 else 0.02):
            try:
                self.wfile.write(piece)
            except OSError:
                self.dropped[self.path] += 1
                return

    def _answer(self, status: int, given: Any) -> None:
        data = given if isinstance(given, bytes) else json.dumps(given).encode()
        self.send_response(status)
        for name, value in (("Content-Length", str(len(data))), ("Retry-After", "3600"), ("Location", "http://u:pw@127.0.0.1:9/")):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *given: Any) -> None:
        """Nothing on standard error."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    Registry.ended.set()
    server.shutdown()


def schemas_at(url: str, **more: Any) -> ServiceSchemas:
    return ServiceSchemas({"url": f"http://me:s3cr%40t@{url}", "max.retries": 1, "retries.wait.ms": 1, **more})


@pytest.mark.parametrize(
    ("id", "said"),
    [
        (2, "schemas cannot be read: JSONDecodeError"), (3, "schemas cannot be read"), (11, "RecursionError"),
        (302, "answered 302, name the URL that it redirects to"), (401, "answered 401, check its user and password"),
        (403, "answered 403, check its user and password"), (429, "answered 429"), (500, "answered 500"), (503, "answered 503"),
    ],
)  # fmt: skip
def test_errors_without_credentials(url: str, id: int, said: str) -> None:
    with pytest.raises(UnreadableSchemasError) as raised:
        schemas_at(url).by_id(id)
    assert said in str(raised.value)
    shown = "".join(traceback.format_exception(raised.value))
    assert str(raised.value).startswith(f"http://{url}")
    assert len(str(raised.value)) < 500
    # The second is the base64 of both, as the client sends it.
    assert not any(secret in shown for secret in ("s3cr@t", "s3cr%40t", "bWU6czNjckB0"))


def test_a_registry_that_never_answers(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UnreadableSchemasError, match="ReadTimeout"):
        schemas_at(url, timeout=0.05).by_id(99)
    monkeypatch.setattr(service, "_ANSWER_SECONDS", 0.05)
    with pytest.raises(UnreadableSchemasError, match=r"no whole answer within 0\.05 s"):
        schemas_at(url).by_id(99)
    assert schemas_at(url)._client._rest_client.timeout == 30


@pytest.mark.parametrize(
    ("id", "said"), [(98, "an answer has more than 16 MiB"), (97, "an answer is not whole after"), (96, "no whole answer")]
)
def test_answers_without_end(url: str, id: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are given up, their connection is closed, and no thread goes on to collect them."""
    Registry.dropped.clear()
    before = {*threading.enumerate()}
    monkeypatch.setattr(service, "_ANSWER_SECONDS", 0.5 if id == 96 else 60)
    with pytest.raises(UnreadableSchemasError, match=said):
        schemas_at(url, timeout=0.3 if id == 97 else 30).by_id(id)
    for thread in {*threading.enumerate()} - before:
        if thread.name == "kolumn-registry":
            thread.join(20)
            assert not thread.is_alive()
    for _ in range(400):
        if Registry.dropped:
            break
        time.sleep(0.05)
    assert sum(Registry.dropped.values()) == 1


def test_requests_of_the_callers_own_client_are_its_own(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds hold while a read asks."""
    monkeypatch.setattr(service, "MOST_BYTES", 10)
    client = SchemaRegistryClient({"url": f"http://{url}", "max.retries": 0})
    with pytest.raises(UnreadableSchemasError, match="an answer has more"):
        ServiceSchemas(client).by_id(1)
    assert client.get_schema(1).schema_str == ANSWERS[1]["schema"]


def test_schemas_that_are_none_are_not_there(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Each is asked for once, and told once."""
    Registry.asked.clear()
    found = schemas_at(url)
    with caplog.at_level(logging.WARNING, "kolumn"):
        assert [found.by_id(id) for id in (4, 5, 6, 7, 8, 404, 4, 404)] == [None] * 8
    assert dict(Registry.asked) == {f"/schemas/ids/{id}": 1 for id in (4, 5, 6, 7, 8, 404)}
    assert [one.getMessage().partition(f"{url}: ")[2] for one in caplog.records] == [
        "schema 4 is left out: expected AVRO or PROTOBUF or JSON, found 'XML'",
        "schema 5 is left out: expected a schema as text, found int",
        "schema 6 is left out: expected a schema as text, found NoneType",
        "schema 7 is left out: expected a schema as text, found str",
        "schema 8 is left out: expected references with name, subject and version, "
        "found (Reference(name='x', subject=None, version=None),)",
    ]


def test_ids_without_a_schema_are_asked_for_up_to_a_limit(url: str, caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    """As values without a prefix have them. Ids that are known remain so."""
    monkeypatch.setattr(service, "_MOST_ABSENT", 3)
    Registry.asked.clear()
    found = schemas_at(url)
    known = found.by_id(1)
    with caplog.at_level(logging.WARNING, "kolumn"):
        assert known is not None
        assert [found.by_id(id) for id in (404, 4, 404, 6, 9, 5, 1)] == [None] * 6 + [known]
    assert dict(Registry.asked) == {f"/schemas/ids/{id}": 1 for id in (1, 404, 4, 6)}
    assert "has no schemas for 3 ids of values: other ids are not asked for" in caplog.records[-1].getMessage()


def test_a_subject_is_not_taken_for_an_id(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CYCLES, "id", CYCLES["A"])
    found = schemas_at(url)
    by_id = found.by_id(1)
    by_subject = found.version("id", 1)
    assert by_id is not None
    assert by_subject is not None
    assert by_subject.text == A != by_id.text


def test_values_of_such_schemas_are_not_valid(url: str, tmp_path: Path) -> None:
    """Those of others are read."""
    values = [b"\0" + id.to_bytes(4, "big") + b"\x0a" for id in (1, 4, 6, 404, 9, 10, 1)]
    kolumn.write(pa.table({"value": pa.array(values, pa.binary())}), tmp_path / "o-0")
    how: dict[str, Any] = {"value_format": "avro", "value_schema": ANSWERS[1]["schema"], "columns": ["value"]}
    found = kolumn.read(tmp_path / "o-0", value_schemas={"url": f"http://{url}", "max.retries": 0}, **how)
    assert found["value"].to_pylist() == [{"id": 5}] + [None] * 5 + [{"id": 5}]
    how = {"value_format": "protobuf", "value_schema": PROTO, "columns": ["value"]}
    found = kolumn.read(tmp_path / "o-0", value_schemas={"url": f"http://{url}", "max.retries": 0}, **how)
    assert found["value"].null_count == len(values)


@pytest.mark.parametrize(("format", "schema"), [("avro", ANSWERS[1]["schema"]), ("protobuf", PROTO)])
def test_a_registry_that_fails_ends_the_read(url: str, tmp_path: Path, format: str, schema: str) -> None:
    kolumn.write(pa.table({"value": pa.array([b"\0\0\0\1\xf4\x0a"], pa.binary())}), tmp_path / "o-0")
    how: dict[str, Any] = {"value_format": format, "value_schema": schema, "value_schemas": {"url": f"http://{url}", "max.retries": 0}}
    with pytest.raises(kolumn.ArgumentError, match="answered 500"):
        kolumn.read(tmp_path / "o-0", **how)


def test_ids_are_asked_for_with_the_subject(url: str, tmp_path: Path) -> None:
    """The registry decides in which context it is; one that does not know the id of the subject is asked without."""
    found = schemas_at(url)
    for naming, right in (
        (Naming("topic", "value", ("ctx",)), '"bytes"'), (Naming("topic", "value", ("a", "b")), '"int"'),
        (Naming("record", "value", ("ctx",)), '"int"'), (Naming("topic", "key", ("ctx",)), '"int"'),
    ):  # fmt: skip
        near = found.within(naming)
        assert (near.by_id(12).text, pickle.loads(pickle.dumps(near)).by_id(12).text, found.by_id(12).text) == (right, right, '"int"')
    assert found.within(Naming("topic", "value", ("no",))).by_id(13).text == '"long"'
    assert found.within(Naming("topic", "value", ("no",))).by_id(404) is None

    class Older:
        """A client whose method takes no subject."""

        def get_schema(self, schema_id: int) -> Any:
            return SchemaRegistryClient({"url": f"http://{url}"}).get_schema(schema_id)

    assert ServiceSchemas(Older()).within(Naming("topic", "value", ("ctx",))).by_id(12).text == '"int"'
    kolumn.write(pa.table({"value": pa.array([b"\0\0\0\0\x0c\2q"], pa.binary())}), tmp_path / "ctx-0")
    how: dict[str, Any] = {"value_format": "avro", "value_schema": '"bytes"', "columns": ["value"]}
    assert kolumn.read(tmp_path / "ctx-0", value_schemas=f"http://{url}", **how)["value"].to_pylist() == [b"q"]


def test_the_newest_of_deleted_versions(url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = schemas_at(url)
    with caplog.at_level(logging.WARNING, "kolumn"):
        assert [found.newest("dead-value").id for _ in range(2)] == [13, 13]
    assert [one.getMessage().partition(f"{url}: ")[2] for one in caplog.records] == [
        "all versions of dead-value are deleted: the newest of them, version 3, is taken"
    ]
    assert [(one.subject, one.version, one.schema.id, one.is_deleted) for one in found.registered()] == [
        ("dead-value", 1, 12, True), ("dead-value", 3, 13, True)
    ]  # fmt: skip
    kolumn.write(pa.table({"value": pa.array([b"\0\0\0\0\x0d\2"], pa.binary())}), tmp_path / "dead-0")
    given: dict[str, Any] = {"value_format": "registry", "value_schemas": f"http://{url}", "columns": ["value"]}
    assert kolumn.read(tmp_path / "dead-0", **given)["value"].to_pylist() == [1]
    with pytest.raises(kolumn.ArgumentError, match="only a topic _schemas on disk has the times"):
        kolumn.read(tmp_path / "dead-0", value_as_of=1, **given)
