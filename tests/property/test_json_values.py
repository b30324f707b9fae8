"""Is every JSON value decoded as Python's json reads it, alone and among others, whatever the bytes are?"""

import json
import math
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kit.fuzz import examples
from kolumn.values.decoder import nested_type
from kolumn.values.framing import BareFramer
from kolumn.values.json import JsonDecoder

PLAIN = {"id": "int64", "small": "int8", "big": "uint64", "name": "string", "ok": "bool", "x": "float64"}
TYPE = nested_type({**PLAIN, "list": ["int32"], "inner": {"a": "string", "rows": [{"b": "int16"}]}})
_INVALID = object()
_LIMITS = {kind: np.iinfo(kind.to_pandas_dtype()) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint64())}


class _Object(dict[str, Any]):
    """An object, and the names that it has more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.twice = {name for name, times in Counter(name for name, _ in pairs).items() if times > 1}


class _Int(int):
    """A number, and its text: zero keeps no minus."""

    def __new__(cls, text: str) -> "_Int":
        made = super().__new__(cls, text)
        made.text = text
        return made

    text: str


class _Float(str):
    """The text of a number with a fraction or an exponent."""


def expected(value: bytes | None) -> Any:
    """What the value is in `TYPE`; `_INVALID` if it has no place in it."""
    if value is None:
        return _INVALID
    try:
        found = json.loads(value.decode(), object_pairs_hook=_Object, parse_int=_Int, parse_float=_Float, parse_constant=_Float)
        json.dumps(found).encode().decode("unicode_escape").encode("utf-16", "surrogatepass").decode("utf-16")
    except ValueError:
        return _INVALID
    return _of(found, TYPE) if isinstance(found, _Object) else _INVALID


def _of(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_struct(kind):
        if not isinstance(value, _Object) or value.twice & {field.name for field in kind}:
            return _INVALID
        members = {field.name: _of(value.get(field.name), field.type) for field in kind}
        return _INVALID if _INVALID in members.values() else members
    if pa.types.is_list(kind):
        items = [_of(one, kind.value_type) for one in value] if isinstance(value, list) else [_INVALID]
        return _INVALID if _INVALID in items else items
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else _INVALID
    if pa.types.is_string(kind):
        return value if isinstance(value, str) and not isinstance(value, _Float) else _INVALID
    if isinstance(value, bool) or not isinstance(value, int | _Float):
        return _INVALID
    if pa.types.is_floating(kind):
        text = value.text if isinstance(value, _Int) else str(value)
        number = float(text)
        return number if math.isfinite(number) or not text[-1:].isdigit() else _INVALID
    limits = _LIMITS[kind]
    if not isinstance(value, _Int) or not limits.min <= value <= limits.max or (limits.min == 0 and value.text.startswith("-")):
        return _INVALID
    return int(value)


def decoded(values: list[bytes | None]) -> list[Any]:
    bodies, _ = BareFramer().bodies(pa.array(values, pa.binary()))
    found, valid = JsonDecoder(TYPE).decode(bodies)
    found.validate(full=True)
    assert found.type == TYPE
    assert found.is_valid().to_pylist() == valid.tolist()
    return [one if fine else _INVALID for one, fine in zip(found.to_pylist(), valid.tolist(), strict=True)]


numbers = st.one_of(
    st.integers(-(2**70), 2**70),
    st.sampled_from([127, 128, -128, -129, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 0]),
    st.floats(allow_nan=False, allow_infinity=False),
)
leaves = st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=5))
names = st.sampled_from([*(field.name for field in TYPE), "a", "rows", "b", "other", ""])
lists_and_objects = lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(names, inner, max_size=5))  # noqa: E731
documents = st.recursive(leaves, lists_and_objects, max_leaves=12)
rows = st.fixed_dictionaries({"rows": st.lists(st.fixed_dictionaries({"b": st.integers(-5, 5)}), max_size=2)})
fitting = st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(-(2**63), 2**63 - 1),
        "small": st.integers(-130, 130),
        "big": st.integers(0, 2**64 - 1),
        "name": st.one_of(st.none(), st.text(max_size=5)),
        "ok": st.booleans(),
        "x": st.floats(),
        "list": st.lists(st.one_of(st.none(), st.integers(-5, 5)), max_size=3),
        "inner": st.one_of(st.none(), rows),
        "more": documents,
    },
)


ODD = [None, b"", b"{", b"}", b"[", b"]}", b'{"id":', b'{"x": 1e400}', b'{"list": [', b'{"id": 01}', b'{"x": -}', b'{"id": 1,}']


@st.composite
def payloads(draw: st.DrawFn) -> bytes | None:
    """A value: often right, sometimes with bytes changed, sometimes several documents, sometimes anything."""
    document = draw(st.one_of(fitting, fitting, documents))
    text = json.dumps(document, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, None, 1])))
    data, how = text.encode("utf-8", "surrogatepass"), draw(st.integers(0, 9))
    if how == 0 and data:
        position = draw(st.integers(0, len(data) - 1))
        return data[:position] + draw(st.binary(max_size=2)) + data[position + draw(st.integers(0, 2)) :]
    if how == 1:
        before, after = [b"", b" ", b"\n\t", b"\xef\xbb\xbf"], [b"", b" ", b"\r\n", b"{}", b"]}", b",", b"}"]
        return draw(st.sampled_from(before)) + data + draw(st.sampled_from(after))
    return draw(st.sampled_from(ODD)) if how == 2 else data


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(payloads(), max_size=8))
@example([b'{"id": 1}', b'{"inner": {"rows": [', b"]}}", b'{"id": 2}'])
@example([b'{"id": 1}{"id": 5}', b"{", b'{"id": 2}'])
@example([b'{"name": "\\ud800"}', b'{"name": "\\ud83d\\ude00"}', b'{"other": "\\udc00"}'])
@example([b'{"x": -0}', b'{"x": %s}' % (b"9" * 400), b'{"x": -%s}' % (b"9" * 308)])
@example([b'{"x": NaN}', b'{"x": -Infinity}', b'{"big": -0}', b'{"id": -0}', b'{"id": 1, "id": 1}', b'{"q": 1, "q": 1}'])
def test_values_as_python_reads_them(values: list[bytes | None]) -> None:
    found = decoded(values)
    assert [repr(one) for one in found] == [repr(expected(value)) for value in values]
    assert [repr(one) for one in found] == [repr(decoded([value])[0]) for value in values]
