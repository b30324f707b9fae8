"""What Spark hands over as text, read: option names in any case, values by the type that each option has."""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any

from kolumn.errors import ArgumentError
from kolumn.options import Options, column_list

SPLIT_BYTES = 128 << 20


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _time(text: str) -> int | datetime:
    """Milliseconds since 1970, or a date and time in ISO 8601."""
    try:
        return int(text)
    except ValueError:
        return datetime.fromisoformat(text)


def _paths(text: str) -> tuple[str, ...]:
    """As ``load([...])`` passes a list on: a JSON array."""
    return tuple(json.loads(text))


# Option of Spark -> (option of kolumn.options, how to read the text, what is asked for)
_DECODE: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "format": ("format", str, "the name of a format"),
    "columns": ("columns", column_list, "names of columns with commas between"),
    "includeHeaders": ("include_headers", _flag, "true or false"),
    "startOffset": ("start_offset", int, "an integer"),
    "endOffset": ("end_offset", int, "an integer"),
    "startTimestamp": ("start_timestamp", _time, "milliseconds since 1970, or a time in ISO 8601"),
    "endTimestamp": ("end_timestamp", _time, "milliseconds since 1970, or a time in ISO 8601"),
    "isolationLevel": ("isolation_level", str, "the name of a level"),
    "includeControl": ("include_control", _flag, "true or false"),
    "checkCrcs": ("check_crcs", _flag, "true or false"),
    "errors": ("errors", str, "raise or skip"),
    "backend": ("backend", str, "the name of a backend"),
    "chunkBytes": ("chunk_bytes", int, "an integer"),
    "topic": ("topic", str, "a name"),
    "partition": ("partition", int, "an integer"),
    "maxBatchBytes": ("max_batch_bytes", int, "an integer"),
    "maxRatio": ("max_ratio", float, "a number"),
}
_OWN: dict[str, tuple[str, Callable[[str], Any], str]] = {
    "path": ("path", str, "a path"),
    "paths": ("paths", _paths, "a JSON array of paths"),
    "splitBytes": ("split_bytes", int, "an integer"),
}
_KNOWN = {name.lower(): (name, *rule) for name, rule in (_DECODE | _OWN).items()}


@dataclass(frozen=True)
class ReadOptions:
    """Everything that one ``load`` asks for.

    Attributes
    ----------
    paths : tuple of str
    split_bytes : int
        How much of the log one task reads, about.
    names_columns : bool
        Whether the options say which columns there are (and a schema given by the user has to agree).
    decode : kolumn.options.Options
    """

    paths: tuple[str, ...]
    split_bytes: int
    names_columns: bool
    decode: Options

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> "ReadOptions":
        """Read the options of a data source.

        Raises
        ------
        ArgumentError
            For a name that is unknown, a value that cannot be read, and a missing path.
        """
        values = dict(_read(name, text) for name, text in texts.items())
        paths = values.pop("paths", ()) + ((values.pop("path"),) if "path" in values else ())
        if not paths:
            raise ArgumentError("no path: name a segment file, a topic-partition directory, a log directory or a glob in load(...)")
        split_bytes = values.pop("split_bytes", SPLIT_BYTES)
        return cls._of(paths, split_bytes, values)

    @classmethod
    def given(cls, source: Any, split_bytes: int, values: Mapping[str, Any]) -> "ReadOptions":
        """A source and keyword options as `kolumn.read` takes them.

        Raises
        ------
        ArgumentError
            As `kolumn.options.Options.of`, and for ``binary``, which is no choice in Spark.
        """
        if "binary" in values:
            raise ArgumentError("option 'binary' is about Arrow tables in Python: Spark has one binary type; leave it out")
        paths = (source,) if isinstance(source, str | os.PathLike) else source
        return cls._of(tuple(map(os.fspath, paths)), split_bytes, values)

    @classmethod
    def _of(cls, paths: tuple[str, ...], split_bytes: int, values: Mapping[str, Any]) -> "ReadOptions":
        if not isinstance(split_bytes, int) or split_bytes < 1:
            raise ArgumentError(f"option splitBytes: expected at least 1, found {split_bytes}")
        named = bool("columns" in values or values.get("include_headers", False))
        # A task is one of many on its machine: Spark, not Kolumn, decides how many cores are busy.
        return cls(tuple(map(_local, paths)), split_bytes, named, Options.of(**(dict(values) | {"threads": 1})))

    def only(self, columns: tuple[str, ...]) -> "ReadOptions":
        """The same read with other columns."""
        return replace(self, decode=Options.of(**(asdict(self.decode) | {"columns": columns, "include_headers": False})))


def _local(path: str) -> str:
    """A path that means the same in every worker, whatever folder it runs in; ``file:`` as Spark writes it is left out."""
    path = re.sub(r"^file:(//)?(?=/)", "", path)
    return path if "://" in path else os.path.abspath(path)


def _read(name: str, text: str) -> tuple[str, Any]:
    if name.lower() not in _KNOWN:
        (near,) = get_close_matches(name.lower(), _KNOWN, n=1, cutoff=0)
        raise ArgumentError(f"unknown option {name!r}, did you mean {_KNOWN[near][0]!r}? Options are {', '.join(_DECODE | _OWN)}")
    spelled, field, read, wanted = _KNOWN[name.lower()]
    try:
        return field, read(text)
    except (KeyError, ValueError) as error:
        raise ArgumentError(f"option {spelled}: expected {wanted}, found {text!r}") from error
