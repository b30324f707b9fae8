"""Reads an Avro value by its plan in plain Python, field by field: what does not fit costs the field that it belongs to. The loop,
`kolumn.values.wire.avro`, reads by the same plans, and leaves to this reader what does not fit and what is rare: text in JSON, and decimals
that are text. For all that the loop returns as valid, both return the same.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kolumn.core.lost import ELEMENTS
from kolumn.values.avro_json import json_of, quoted
from kolumn.values.avro_resolve import (
    TIMES,
    Branches,
    Constant,
    Items,
    Json,
    LostField,
    Member,
    Plan,
    RecordFields,
    Skip,
    Steps,
    Value,
    decimal_of,
    duration_of,
    in_unit,
    may_be_empty,
)
from kolumn.values.avro_schema import SchemaNode
from kolumn.values.avro_types import decimal_bytes, is_text_decimal
from kolumn.values.wire.avro import FREE

LOST: object = object()
"""Instead of a value that cannot be had."""
Paths = tuple[str, ...]


class _UnfollowedError(Exception):
    """The bytes do not go on as the writer's schema says."""


def read(plan: Plan, data: bytes) -> tuple[object, Paths] | None:
    """What a value becomes, as `pyarrow.array` takes it, and the dotted paths of the fields that are lost and null; None if nothing can be
    had of it, because where its fields are cannot be told to its end, or because it is one value that does not fit.
    """
    reader = _Reader(data, FREE + len(data))
    try:
        value = reader.part(plan, ())
    except _UnfollowedError:
        return None
    return None if value is LOST or reader.at != len(data) else (value, tuple(dict.fromkeys(reader.lost)))


@dataclass
class _Reader:
    """``at`` is where it is; ``free`` are the items without bytes that the value may still have."""

    data: bytes
    free: int
    at: int = 0
    lost: list[str] = field(default_factory=list)
    empty: dict[SchemaNode, bool] = field(default_factory=dict)

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise _UnfollowedError
        self.at += size
        return self.data[self.at - size : self.at]

    def long(self) -> int:
        bits = 0
        for shift in range(0, 70, 7):
            byte = self.take(1)[0]
            bits |= (byte & 0x7F) << shift
            if byte < 0x80:
                bits &= (1 << 64) - 1
                return (bits >> 1) ^ -(bits & 1)
        raise _UnfollowedError

    def branch(self, union: SchemaNode) -> int:
        number = self.long()
        if not 0 <= number < len(union.branches):
            raise _UnfollowedError
        return number

    def items(self, empties: bool, skipped: bool = False) -> Iterator[None]:
        """Goes to each item of an array or map. Blocks of those that are skipped are skipped whole if they say their size."""
        limit = None
        while True:
            if limit is not None and self.at != limit:
                raise _UnfollowedError
            limit, count = None, self.long()
            while count < 0:
                size = self.long()
                if not 0 <= size <= len(self.data) - self.at or count == -(1 << 63):
                    raise _UnfollowedError
                if skipped:
                    self.at += size
                    count = self.long()
                else:
                    count, limit = -count, self.at + size
            self.free -= count if empties else 0
            if self.free < 0 or (not empties and count > len(self.data) - self.at):
                raise _UnfollowedError
            if count == 0:
                return
            for _ in range(count):
                yield

    def part(self, plan: Plan, steps: Steps) -> object:
        """The value of a part, or `LOST`; ``steps`` are the fields that lead to it."""
        match plan:
            case Value():
                return self.value(plan.writer, plan.reader)
            case RecordFields():
                return self.record(plan, steps)
            case Items():
                return self.listed(plan, steps)
            case Branches():
                number = self.branch(plan.writer)
                branch = plan.branches[number]
                if branch is not None:
                    return self.part(branch, steps)
                self.walk(plan.writer.branches[number], skipped=True)
                return LOST
            case Member() if not plan.name:
                return self.part(plan.value, steps)
            case Member() if isinstance(plan.value, Skip):
                self.part(plan.value, steps)
                return {}
            case Member():
                return {plan.name: self.nullable(plan.value, (*steps, plan.name))}
            case Json():
                text = self.walk(plan.writer)
                return LOST if text is None else text
            case Constant():
                return plan.value
            case LostField(writer, _) | Skip(writer):
                if writer is not None:
                    self.walk(writer, skipped=True)
                return LOST

    def nullable(self, plan: Plan, steps: Steps) -> object:
        """A part that is null if it is lost."""
        before = len(self.lost)
        value = self.part(plan, steps)
        if value is not LOST:
            return value
        # What is lost within it goes without saying.
        self.lost[before:] = [".".join(steps) or ELEMENTS]
        return None

    def record(self, plan: RecordFields, steps: Steps) -> dict[str, object]:
        found = {}
        for name, part in plan.parts:
            if name:
                found[name] = self.nullable(part, (*steps, name))
            else:
                self.part(part, steps)
        return found

    def listed(self, plan: Items, steps: Steps) -> object:
        values, fits = [], True
        for _ in self.items(plan.empties):
            key = self.text() if plan.is_map else ""
            value = self.nullable(plan.item, steps) if plan.nullable else self.part(plan.item, steps)
            fits = fits and key is not LOST and value is not LOST
            values.append((key, value) if plan.is_map else value)
        return values if fits else LOST

    def text(self) -> object:
        try:
            return self.take(self.long()).decode()
        except UnicodeDecodeError:
            return LOST

    def value(self, writer: SchemaNode, reader: SchemaNode) -> object:
        """A value that is no record, array, map or union."""
        kind = writer.kind
        if kind == "null":
            return None
        if kind == "boolean":
            byte = self.take(1)[0]
            return byte == 1 if byte <= 1 else LOST
        if kind in ("float", "double"):
            return struct.unpack("<f" if kind == "float" else "<d", self.take(4 if kind == "float" else 8))[0]
        if kind in ("int", "long", "enum"):
            return _of_number(self.long(), writer, reader)
        if reader.kind == "string":
            return self.text()
        return _of_bytes(self.take(writer.size if kind == "fixed" else self.long()), reader)

    def walk(self, node: SchemaNode, skipped: bool = False) -> str | None:
        """Passes over a value of the writer's, and returns it as text in JSON, None if it is none. It can be nested to any depth."""
        out: list[str] = []
        fits, todo = True, list["SchemaNode | str | _Open"]([node])
        while todo:
            part = todo.pop()
            if isinstance(part, str):
                out.append(part)
            elif isinstance(part, _Open):
                if next(part.items, LOST) is LOST:
                    out.append("}" if part.is_map else "]")
                    continue
                out.append("," if part.begun else "")
                part.begun = True
                todo += [part, part.item]
                if part.is_map:
                    key = self.text()
                    fits = fits and key is not LOST
                    out.append(f"{quoted(str(key))}:")
            elif part.kind == "record":
                named = [(f"{',' if number else '{'}{quoted(one.name)}:", one.type) for number, one in enumerate(part.fields)]
                todo += reversed([piece for pair in named for piece in pair] + ["}" if named else "{}"])
            elif part.kind in ("array", "map"):
                is_map = part.kind == "map"
                out.append("{" if is_map else "[")
                todo.append(_Open(self.items(not is_map and may_be_empty(part.inner, self.empty), skipped), part.inner, is_map))
            elif part.kind == "union":
                todo.append(part.branches[self.branch(part)])
            else:
                value = self.value(part, part)
                fits = fits and value is not LOST
                out.append("" if skipped or value is LOST else json_of(part, value))
        return "".join(out) if fits else None


@dataclass
class _Open:
    """An array or map whose items are passed over."""

    items: Iterator[None]
    item: SchemaNode
    is_map: bool
    begun: bool = False


def _of_number(number: int, writer: SchemaNode, reader: SchemaNode) -> object:
    if writer.kind == "enum":
        symbol = writer.symbols[number] if 0 <= number < len(writer.symbols) else None
        known = symbol is not None and symbol in reader.symbols
        return symbol if known else LOST if symbol is None or reader.default is None else reader.default
    if writer.kind == "int" and not -(1 << 31) <= number < 1 << 31:
        return LOST
    if reader.kind == "float":
        return float(np.int64(number).astype(np.float32))
    if reader.kind == "double":
        return float(number)
    day = None if reader.logical is None else TIMES.get(reader.logical.name)
    found = in_unit(number, reader.logical) if day is None or 0 <= number < day else None
    return LOST if found is None else found


def _of_bytes(data: bytes, reader: SchemaNode) -> object:
    logical = reader.logical
    found: object = data
    if logical is None:
        return data
    if logical.name == "duration":
        found = duration_of(data)
    elif is_text_decimal(reader):
        number = decimal_of(data, logical)
        found = None if number is None else f"{number:f}"
    elif decimal_bytes(reader):
        found = decimal_of(data, logical)
    return LOST if found is None else found
