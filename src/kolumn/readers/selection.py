"""Which records a call is about: those with some keys, with some headers, or with some fields of typed keys and values."""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from kolumn.core.errors import ArgumentError
from kolumn.core.lost import WHOLE
from kolumn.core.schema import RECORD_COLUMNS
from kolumn.values.extensions import JSON_TEXT

Key = bytes | str
Keys = Key | Iterable[Key]
Condition = tuple[str, str | bytes]
Where = str | Iterable[str | Condition] | Mapping[str, str | bytes]
BASE64 = "base64:"
HEX = "hex:"
_SIDES = ("key", "value")
_DECODE: dict[str, Callable[[str], bytes]] = {BASE64: lambda text: base64.b64decode(text, validate=True), HEX: bytes.fromhex}


def bytes_of(text: Key) -> bytes:
    """Bytes that a caller names: bytes as they are, text as UTF-8, or after ``base64:`` or ``hex:`` in that form. No error says them."""
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise ArgumentError(f"a key, or the value of a header, is of the type {type(text).__name__}: expected bytes or text")
    for prefix, decode in _DECODE.items():
        if text.startswith(prefix):
            try:
                return decode(text.removeprefix(prefix))
            except (binascii.Error, ValueError) as error:
                raise ArgumentError(f"a key, or the value of a header: what follows {prefix} is not {prefix[:-1]}: {error}") from error
    return text.encode("utf-8", "surrogateescape")


def text_of(key: bytes) -> str:
    """A text from which `bytes_of` makes these bytes."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return HEX + key.hex()
    return HEX + key.hex() if text.startswith(tuple(_DECODE)) else text


@dataclass(frozen=True)
class Selection:
    """Records with one of the ``keys``, if these are given, and with every one of the ``headers`` and ``fields``.

    ``fields`` are paths that begin with "key" or "value", with their values as text. ``typed`` says which of "key" and "value" are decoded,
    so that their stored bytes are in another column.
    """

    keys: pa.Array | None
    headers: tuple[tuple[str, bytes], ...]
    fields: tuple[tuple[str, str], ...]
    typed: frozenset[str]

    @classmethod
    def of(cls, keys: Keys | None = None, where: Where | None = None, typed: Iterable[str] = ()) -> "Selection":
        """From parameters: ``where`` has conditions "NAME=VALUE" of headers, and "value.PATH=VALUE" or "key.PATH=VALUE" of typed payloads;
        "header.NAME=VALUE" is a header of any name. All of them must hold. Raises `ArgumentError` if nothing is asked for, or a condition
        is about fields of something that is not typed."""
        named = [keys] if isinstance(keys, bytes | str) else None if keys is None else list(keys)
        if named is not None and not named:
            raise ArgumentError("keys is empty: name at least one key, or leave it out")
        headers, fields, sides = list[tuple[str, bytes]](), list[tuple[str, str]](), frozenset(typed)
        for name, value in conditions(where):
            side = name.partition(".")[0]
            if name in RECORD_COLUMNS and name not in _SIDES:
                raise ArgumentError(
                    f"where={name!r}: a record column; conditions are about headers, or fields of typed values and keys. For columns: "
                    f"kolumn sql --columns key,{name} DIR 'select * from TOPIC where \"{name}\" = …'. A header of that name: header.{name}"
                )
            if side not in _SIDES:
                headers.append((name.removeprefix("header."), bytes_of(value)))
            elif side not in sides:
                raise ArgumentError(f"where={name!r}: a field of {side}s, which are bytes without {side}_format")
            else:
                fields.append((name, value.decode() if isinstance(value, bytes) else value))
        if named is None and not headers and not fields:
            raise ArgumentError("name the records: by their keys, or by conditions (where) on headers or on fields of typed values")
        array = None if named is None else pa.array(sorted({bytes_of(key) for key in named}), pa.binary())
        return cls(array, tuple(headers), tuple(fields), sides)

    @property
    def columns(self) -> tuple[str, ...]:
        """The record columns that `flags` needs."""
        sides = dict.fromkeys(path.partition(".")[0] for path, _ in self.fields)
        needed = [*sides, *(f"{side}Problems" for side in sides)]
        if self.keys is not None:
            needed.append(self._key)
        return (*dict.fromkeys(needed), *(("headers",) if self.headers else ()))

    @property
    def _key(self) -> str:
        return "keyRaw" if "key" in self.typed else "key"

    def flags(self, batch: pa.RecordBatch) -> pa.Array:
        """Whether each record is meant; never null."""
        parts = [] if self.keys is None else [_among(batch[self._key], self.keys)]
        parts += [_has_header(batch["headers"], name, value) for name, value in self.headers]
        parts += [_has_field(batch, path, text) for path, text in self.fields]
        return reduce(pc.and_, parts)

    def undecided(self, batch: pa.RecordBatch) -> int:
        """Of how many records a field of a condition cannot be decoded, so that nobody knows whether they are meant."""
        rows: set[int] = set()
        for path, _ in self.fields:
            side, _, asked = path.partition(".")
            problems, whole = batch[f"{side}Problems"], batch[side].is_null()
            for row in pc.indices_nonzero(problems.is_valid()).to_pylist():
                if whole[row].as_py() or any(_overlap(asked, lost) for lost in problems[row].as_py()):
                    rows.add(row)
        return len(rows)


def _overlap(asked: str, lost: str) -> bool:
    """Whether a lost field is one that is asked for, in it, or around it."""
    return lost == WHOLE or f"{asked}.".startswith(f"{lost}.") or lost.startswith(f"{asked}.")


def conditions(where: Where | None) -> list[Condition]:
    """Names and values of conditions; raises `ArgumentError`, which does not say it, for a text that is not NAME=VALUE."""
    if where is None:
        return []
    if isinstance(where, Mapping):
        return list(where.items())
    made = list[Condition]()
    for text in [where] if isinstance(where, str) else where:
        if not isinstance(text, str):
            made.append(text)
            continue
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise ArgumentError("where: a condition without a name or a sign =: expected NAME=VALUE of a header, or value.PATH=VALUE")
        made.append((name, value))
    return made


def _among(column: pa.Array, keys: pa.Array) -> pa.Array:
    if len(keys) == 1:
        return pc.fill_null(pc.equal(column, keys[0].cast(column.type)), False)
    return pc.is_in(column, value_set=keys.cast(column.type))


def _has_header(headers: pa.Array, name: str, value: bytes) -> pa.Array:
    element = headers.flatten()
    key, held = pc.struct_field(element, "key"), pc.struct_field(element, "value")
    same = pc.and_(pc.equal(key, pa.scalar(name).cast(key.type)), pc.fill_null(pc.equal(held, pa.scalar(value, pa.binary())), False))
    rows = pc.list_parent_indices(headers).filter(pc.fill_null(same, False))
    return pc.is_in(pa.array(range(len(headers)), pa.int64()), value_set=pc.unique(rows).cast(pa.int64()))


def _has_field(batch: pa.RecordBatch, path: str, text: str) -> pa.Array:
    side, *names = path.split(".")
    column = batch[side]
    for name in names:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            raise ArgumentError(f"where={path!r}: {side} has no field {name!r} there: its type is {column.type}")
        column = pc.struct_field(column, name)
    if column.type == JSON_TEXT:
        # A text is meant with and without its quotes.
        return pc.is_in(column.storage, value_set=pa.array([text, json.dumps(text), json.dumps(text, ensure_ascii=False)]))
    try:
        return pc.fill_null(pc.equal(column, pa.scalar(text).cast(column.type)), False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ArgumentError(f"where={path!r}: the value is no {column.type}") from error
