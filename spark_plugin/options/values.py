"""Parsers for the text of options; text that cannot be parsed raises ValueError, KeyError, TypeError or AttributeError."""

import json
import os
import re
from collections.abc import Callable, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from kolumn.core.errors import ArgumentError
from kolumn.options import column_list
from kolumn.source.storage import plain

__all__ = [
    "Rule",
    "assignment",
    "column_list",
    "delay_ms",
    "flag",
    "instant",
    "local",
    "offsets",
    "parsed",
    "paths",
    "pattern",
    "refuse_table",
    "strategy",
    "times",
]

_UNITS_MS = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}

Rule = tuple[str, Callable[[str], Any], str]
"""The name that a value is kept under, the parser of its text, and the expected form for the error message."""


def parsed(name: str, text: str, rules: Mapping[str, Rule], title: str) -> tuple[str, Any]:
    """The name that an option is kept under, and its value; names are in any case, ``title`` is what the options are called in an error."""
    known = {one.lower(): one for one in rules}
    if name.lower() not in known:
        (near,) = get_close_matches(name.lower(), known, n=1, cutoff=0)
        raise ArgumentError(f"unknown option {name!r}, did you mean {known[near]!r}? {title} are {', '.join(rules)}")
    spelled = known[name.lower()]
    field, read, expected = rules[spelled]
    try:
        return field, read(text)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ArgumentError(f"option {spelled}: expected {expected}, found {text!r}") from error


def refuse_table(texts: Mapping[str, str]) -> None:
    """Reject CREATE TABLE at once, since its queries would fail: Spark does not pass the options of such a table to the source.

    Raises
    ------
    ArgumentError
        The options are those of a table in a catalog.
    """
    if {"provider", "owner"} <= {name.lower() for name in texts}:
        raise ArgumentError(
            "CREATE TABLE: Spark (4.1 to 4.3) does not pass a table's options on to sources written in Python, so that its queries would "
            "know no path. CREATE TEMPORARY VIEW ... USING kolumn OPTIONS (path '...') works"
        )


def flag(text: str) -> bool:
    """``true`` or ``false``."""
    return {"true": True, "false": False}[text.strip().lower()]


def instant(text: str) -> int | datetime:
    """Milliseconds since 1970, or a date and time in ISO 8601."""
    try:
        return int(text)
    except ValueError:
        return datetime.fromisoformat(text)


def delay_ms(text: str) -> int:
    """A time with a unit, or milliseconds if there is no unit (``JavaUtils.timeStringAs`` of Spark)."""
    match = re.fullmatch(r"(-?\d+)\s*([a-z]*)", text.strip().lower())
    return int(match[1]) * _UNITS_MS[match[2]]  # type: ignore[index]


def paths(text: str) -> tuple[str, ...]:
    """A JSON array of paths, as ``load([...])`` passes a list."""
    return tuple(json.loads(text))


def named_paths(text: str) -> dict[str, str]:
    """Paths by name, from ``name=path`` with commas between."""
    parts = [one.strip().partition("=") for one in text.split(",")]
    if not all(name and path for name, _, path in parts):
        raise ValueError(text)
    return {name: path for name, _, path in parts}


def pattern(text: str) -> str:
    """A regular expression that must match the whole name of a topic."""
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(str(error)) from error
    return text


def strategy(text: str) -> bool:
    """Whether a start time after the last record means the end of the log."""
    return {"error": False, "latest": True}[text.strip().lower()]


def assignment(text: str) -> tuple[tuple[str, int], ...]:
    """``{"topic": [0, 1]}``."""
    return tuple((topic, int(partition)) for topic, partitions in json.loads(text).items() for partition in partitions)


def times(text: str) -> dict[tuple[str, int], int]:
    """``{"topic": {"0": 1700000000000}}``."""
    return {(topic, int(partition)): int(value) for topic, values in json.loads(text).items() for partition, value in values.items()}


def offsets(text: str) -> str | dict[tuple[str, int], int]:
    """``earliest``, ``latest`` or ``{"topic": {"0": 23, "1": -2}}``."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return word
    named = times(text)
    if min(named.values(), default=0) < -2:
        raise ValueError(text)
    return named


def local(path: str) -> str:
    """A path that means the same in every worker: URLs are kept, others become absolute, without the ``file:`` that Spark writes."""
    path = plain(path)
    return path if "://" in path else os.path.abspath(path)
