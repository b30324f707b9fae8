"""Is every JSON value decoded as Python's json reads it, alone and among others, whatever the bytes are?"""

import random

import pyarrow as pa
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kit.fuzz import examples
from kit.json_values import compared, random_type, values_of
from kolumn.values.framing import BareFramer
from kolumn.values.json_types import nested_type

PLAIN = {"id": "int64", "small": "int8", "big": "uint64", "name": "string", "ok": "bool", "x": "float64"}
TYPE = nested_type({**PLAIN, "list": ["int32"], "inner": {"a": "string", "rows": [{"b": "int16"}]}})
SLOW = settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def decided(kind: pa.DataType, values: list[bytes | None], unit: str | None = None) -> int:
    return compared(kind, values, BareFramer().bodies(pa.array(values, pa.binary()))[0], unit)


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


@SLOW
@given(payloads())
@example([b'{"id": 1}', b'{"inner": {"rows": [', b"]}}", b'{"id": 2}'])
@example([b'{"id": 1}{"id": 5}', b"{", b'{"id": 2}'])
@example([b'{"name": "\\ud800"}', b'{"name": "\\ud83d\\ude00"}', b'{"other": "\\udc00"}'])
@example([b'{"x": -0}', b'{"x": %s}' % (b"9" * 400), b'{"x": -%s}' % (b"9" * 308)])
@example([b'{"q": {"b": 1.25e+359223372036854775807}}', b'{"x": 0e999}', b'{"id": 1e400}', b'{"q": "1e400", "r": -1e400}'])
@example([b'{"x": -1E400}', b'{"q": 01e400}', b'{"small": 0e999}'])
@example([b'{"x": NaN}', b'{"x": -Infinity}', b'{"big": -0}', b'{"id": -0}', b'{"id": 1, "id": 1}', b'{"q": 1, "q": 1}'])
@example([b'{"x": 1, "x": "a"}', b'{"inner": {"rows": [{"b": 1, "b": 2}, {"b": "c"}]}, "inner": 5}', b'{"\\u0069d": 1, "\\ud800": 1}'])
def test_values_as_python_reads_them(values: list[bytes | None]) -> None:
    decided(TYPE, values)
    for value in values:
        decided(TYPE, [value])


@SLOW
@given(st.integers(0, 1 << 48))
def test_values_of_any_type(seed: int) -> None:
    rng = random.Random(seed)
    kind = random_type(rng)
    if rng.random() < 0.2:
        kind = rng.choice((pa.list_(kind), pa.map_(pa.string(), kind)))
    values: list[bytes | None] = list(values_of(rng, kind, rng.randrange(1, 12), rng.choice((0, 0.2, 0.8))))
    decided(kind, values, rng.choice((None, None, "s", "ms", "us", "ns")))


@SLOW
@given(payloads())
@example([b'{"x": "0.00", "id": {}}', b'{"x": -1e-3}', b'{"x": "1e9"}', b'{"x": 1e99999999999}', b'{"x": 0e-99}'])
@example([b"null", b' {"a": [1, 2]}\n', b"17", b"[NaN]", b'"Infinity"', b'"\\ud800"', b'"\\u0000"', b"[" * 70 + b"]" * 70, b"1 2", b""])
def test_values_that_stay_text(values: list[bytes | None]) -> None:
    decided(nested_type("json"), values)
    decided(nested_type({"id": "json", "inner": "json", "list": "string", "x": "decimal(12, 3)"}), values)


def test_times_at_the_ends() -> None:
    clocks = (
        "",
        "T00",
        "T00:00:00Z",
        "T23:59:59.999999999+00:00",
        "T23:59:59.9999999999Z",
        "T00:00:00+23:59",
        " 12:00-2359",
        "T12:00:00,5Z",
    )
    days = ("0000-01-01", "0000-02-29", "0001-01-01", "1677-09-21", "2262-04-11", "9999-12-31", "1900-02-29", "2000-02-29", "2026-00-10")
    texts = [f"{day}{clock}" for day in days for clock in clocks]
    texts += [
        "1677-09-21T00:12:43.145224192Z",
        "1677-09-21T00:12:43.145224191Z",
        "2262-04-11T23:47:16.854775807Z",
        "2262-04-11T23:47:16.854775808Z",
    ]
    values: list[bytes | None] = [b'{"t":"%s"}' % text.encode() for text in texts]
    for kind in ("timestamp", "timestamp[ns]", "timestamp[s]", "timestamp_ntz[ms]", "date", "time", "time[s]"):
        for unit in (None, "ns", "s"):
            decided(nested_type({"t": kind}), values, unit)


def test_a_string_that_never_ends_takes_no_longer() -> None:
    """What is refused is looked at again; a search from each of its quotes on would take half an hour."""
    decided(TYPE, [b'{"q": "' + b'\\"' * 500_000, b'{"id": 1, "q": 1e400}'])
