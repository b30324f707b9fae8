"""Columns of texts as times, dates, decimals and bytes: the usual texts are converted all at once, and `kolumn.values.json_plain` reads the
others.
"""

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from kolumn.values.base64_texts import from_base64
from kolumn.values.json_plain import DIGITS, text_reader

_FEW = 64  # Texts that are read one by one when Arrow refuses one of them.
_DATE, _CLOCK = r"\d{4}-\d\d-\d\d", r"\d\d:\d\d:\d\d"
_ZONE = r"(Z|[+-]\d\d:?\d\d)"
_WIDEST = {128: 38, 256: 76}


def typed_texts(texts: pa.StringArray, type: pa.DataType, truncate: bool) -> pa.Array:
    """The texts as values of a type, null where one does not fit it. Of timestamps digits are cut off with ``truncate``."""
    if pa.types.is_binary(type):
        found, failed = from_base64(texts)
        return _with_others(found, texts, pa.array(failed), type, truncate) if failed.any() else found
    shape = _shape(type)
    usual = _matches(texts, shape)
    if pa.types.is_timestamp(type):
        cut = partial(_cut, unit=type.unit, truncate=truncate)
        for normal in (_zoned, cut) if type.tz is not None else (cut,):
            if not pc.all(usual).as_py():
                texts = normal(texts)
                usual = _matches(texts, shape)
    if pc.all(usual).as_py():
        return _cast(texts, type, truncate)
    # Null texts among those that are cast stay null.
    found = _cast(pc.if_else(usual, texts, pa.scalar(None, pa.string())), type, truncate)
    return _with_others(found, texts, pc.and_(pc.invert(usual), _may_fit(texts, type, truncate)), type, truncate)


def _with_others(found: pa.Array, texts: pa.StringArray, others: pa.BooleanArray, type: pa.DataType, truncate: bool) -> pa.Array:
    """A column with what the plain reader makes of some texts."""
    return pc.replace_with_mask(found, others, _one_by_one(texts.filter(others), type, truncate))


def _matches(texts: pa.StringArray, shape: str) -> pa.BooleanArray:
    return pc.fill_null(pc.match_substring_regex(texts, shape), True)


def _shape(type: pa.DataType) -> str:
    """A pattern of texts that Arrow reads as the plain reader does, if it takes them."""
    if pa.types.is_date(type):
        return rf"\A{_DATE}\z"
    if pa.types.is_decimal(type):
        # Arrow does not see that a number has too many digits for 128 or 256 bits.
        whole, more = type.precision - type.scale, _WIDEST[type.bit_width] - type.precision
        digits = rf"[0-9]{{1,{whole}}}" if whole else "0" if more else ""
        return rf"\A-?{digits}(\.[0-9]{{1,{type.scale}}}0{{0,{more}}})?\z" if type.scale else rf"\A-?{digits}\z"
    most = DIGITS[type.unit]
    clock = _CLOCK + (rf"(\.\d{{1,{most}}})?" if most else "")
    if pa.types.is_time(type):
        return rf"\A{clock}\z"
    return rf"\A{_DATE}([T ]{clock})?\z" if type.tz is None else rf"\A{_DATE}[T ]{clock}{_ZONE}\z"


def _may_fit(texts: pa.StringArray, type: pa.DataType, truncate: bool) -> pa.BooleanArray:
    """Which texts are worth the time of the plain reader: what is in every row of a topic has to be told quickly."""
    if pa.types.is_decimal(type):
        begin, more = r"[0-9]", rf"\A-?[0-9]+\.[0-9]{{{type.scale}}}[0-9]*[1-9][0-9]*\z"
    else:
        begin = r"\A\d\d:\d\d" if pa.types.is_time(type) else rf"\A{_DATE}"
        more = "" if truncate or pa.types.is_date(type) else rf"{_CLOCK}\.\d{{{DIGITS[type.unit]}}}\d*[1-9]"
    fine = _matches(texts, begin)
    return pc.and_not(fine, _matches(texts, more)) if more else fine


def _zoned(texts: pa.StringArray) -> pa.StringArray:
    """Times with UTC where they have no zone."""
    texts = pc.replace_substring_regex(texts, rf"\A({_DATE})\z", r"\1T00:00:00Z")
    named = _matches(texts, rf"[Zz]\z|{_ZONE}\z|[+-]\d\d\z")
    return pc.if_else(named, texts, pc.binary_join_element_wise(texts, "Z", ""))


def _cut(texts: pa.StringArray, unit: str, truncate: bool) -> pa.StringArray:
    """Times without the digits that may be left out."""
    kept = rf"(:\d\d\.\d{{{DIGITS[unit]}}})" if DIGITS[unit] else r"(:\d\d)\."
    rest = r"\d+" if truncate else "0+"
    return pc.replace_substring_regex(texts, rf"{kept}{rest}(Z|[+-]|\z)", r"\1\2")


def _cast(texts: pa.StringArray, type: pa.DataType, truncate: bool) -> pa.Array:
    try:
        if pa.types.is_time(type):
            return pc.binary_join_element_wise("1970-01-01T", texts, "").cast(pa.timestamp(type.unit)).cast(type)
        return texts.cast(type)
    except pa.ArrowInvalid:
        if len(texts) <= _FEW:
            return _one_by_one(texts, type, truncate)
    half = len(texts) // 2
    return pa.concat_arrays([_cast(part, type, truncate) for part in (texts.slice(0, half), texts.slice(half))])


def _one_by_one(texts: pa.StringArray, type: pa.DataType, truncate: bool) -> pa.Array:
    read = text_reader(type, truncate)
    values: list[object] = []
    given: Sequence[str | None] = texts.to_pylist()
    for text in given:
        try:
            values.append(None if text is None else read(text))
        except ValueError:
            values.append(None)
    return pa.array(values, type)
