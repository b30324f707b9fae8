"""Is every JSON value decoded as Python's json reads it, alone and among others, whatever the bytes are?"""

import json
import math
import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kit.fuzz import examples
from kit.json_values import values_of
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


BEFORE, AFTER = (b"", b" ", b"\n\t", b"\xef\xbb\xbf"), (b"", b" ", b"\r\n", b"{}", b"]}", b",", b"}")
ODD = [None, b"", b"{", b"}", b"[", b"]}", b'{"id":', b'{"x": 1e400}', b'{"list": [', b'{"id": 01}', b'{"x": -}', b'{"id": 1,}']


@st.composite
def payloads(draw: st.DrawFn) -> list[bytes | None]:
    """Values: often right, sometimes with bytes changed, sometimes several documents, sometimes anything."""
    rng = random.Random(draw(st.integers(0, 1 << 48)))
    made: list[bytes | None] = list(values_of(rng, TYPE, draw(st.integers(0, 8)), draw(st.sampled_from((0, 0.2, 0.8)))))
    for at, one in enumerate(made):
        if one is not None and rng.random() < 0.2:
            made[at] = rng.choice((rng.choice(ODD), rng.choice(BEFORE) + one + rng.choice(AFTER)))
    return made


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(payloads())
@example([b'{"id": 1}', b'{"inner": {"rows": [', b"]}}", b'{"id": 2}'])
@example([b'{"id": 1}{"id": 5}', b"{", b'{"id": 2}'])
@example([b'{"name": "\\ud800"}', b'{"name": "\\ud83d\\ude00"}', b'{"other": "\\udc00"}'])
@example([b'{"x": -0}', b'{"x": %s}' % (b"9" * 400), b'{"x": -%s}' % (b"9" * 308)])
@example([b'{"q": {"b": 1.25e+359223372036854775807}}', b'{"x": 0e999}', b'{"id": 1e400}', b'{"q": "1e400", "r": -1e400}'])
@example([b'{"x": -1E400}', b'{"q": 01e400}', b'{"small": 0e999}'])
@example([b'{"x": NaN}', b'{"x": -Infinity}', b'{"big": -0}', b'{"id": -0}', b'{"id": 1, "id": 1}', b'{"q": 1, "q": 1}'])
def test_values_as_python_reads_them(values: list[bytes | None]) -> None:
    found = decoded(values)
    assert [repr(one) for one in found] == [repr(expected(value)) for value in values]
    assert [repr(one) for one in found] == [repr(decoded([value])[0]) for value in values]


def test_a_string_that_never_ends_takes_no_longer() -> None:
    """What is refused is looked at again; a search from each of its quotes on would take half an hour."""
    assert decoded([b'{"q": "' + b'\\"' * 500_000, b'{"id": 1, "q": 1e400}'])[0] is _INVALID
