"""What a call asks for of the values, or of the keys, of its records: checked options, and what decodes them."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa

from kolumn.core.errors import ArgumentError
from kolumn.core.keywords import PAYLOAD_DEFAULTS, Decode, PayloadAs, PayloadErrors, PayloadFormat
from kolumn.core.schema import beside
from kolumn.values.schemas.schema import Schema, Schemas
from kolumn.values.types import SCHEMALESS, check_separator

# Decoders are imported when one is made: they take as long to import as everything else, and most reads have none.
if TYPE_CHECKING:
    from kolumn.values.decoder import ValueDecoder
    from kolumn.values.decoders import PayloadFramer
    from kolumn.values.internal.decoder import InternalDecoder

INTERNAL = "internal"
"""The format of keys and values with ``decode="internal"``."""
_CHOICES: dict[str, tuple[str, ...]] = {
    "format": get_args(PayloadFormat), "as": get_args(PayloadAs), "errors": get_args(PayloadErrors),
}  # fmt: skip
_OWNERS: dict[str, tuple[str, ...]] = {
    "schemas": ("avro", "protobuf", "json", "registry"),
    "message": ("protobuf", "registry"),
    "skip": ("avro",),
    "separator": ("csv",),
    "sample": ("json",),
}
"""Options that only some formats have."""


@dataclass(frozen=True)
class Typed:
    """How the payloads of one column, "value" or "key", are decoded: the parameters of `kolumn.scan` without their prefix.

    With ``flat`` the fields of a struct are columns of their own. What the decoder is made of, ``reader``, and what opens the writers'
    schemas, which a process calls once, are known after `kolumn.readers.types.with_types`.
    """

    column: str
    format: str
    schema: Any = None
    schemas: Any = None
    message: str | None = None
    columns: tuple[str, ...] | None = None
    framing: str = "auto"
    errors: str = "keep"
    separator: str = ","
    skip: int = 0
    sample: int = 1000
    flat: bool = False
    reader: Any = None
    open_schemas: Callable[[], Schemas] | None = None

    def __getstate__(self) -> dict[str, object]:
        """Without what is made of the others: a process that gets this one makes its own."""
        return {name: value for name, value in self.__dict__.items() if name in self.__dataclass_fields__}

    @property
    def kind(self) -> str:
        """The format of the values: of "registry" that of the reader's schema."""
        return self.reader.kind.lower() if isinstance(self.reader, Schema) else self.format

    @cached_property
    def decoder(self) -> "ValueDecoder":
        """The decoder of this read, which its threads share."""
        from kolumn.values.decoders import decoder_of

        return decoder_of(self.kind, self.reader, self.columns, self.message, self.separator, self.column, self.writers)

    @cached_property
    def of_internal(self) -> "InternalDecoder":
        """The decoder of the format `INTERNAL`, to which keys and values belong together."""
        from kolumn.values.internal.decoder import InternalDecoder

        return InternalDecoder(self.column, self.reader)

    @property
    def looks_at(self) -> tuple[str, ...]:
        """Record columns that are needed beside the own one."""
        if self.format == INTERNAL:
            from kolumn.values.internal.decoder import LOOKS_AT

            return LOOKS_AT
        return ("headers",) if self.framer.needs_headers else ()

    @cached_property
    def writers(self) -> Schemas | None:
        """Writers' schemas, None without any."""
        return None if self.open_schemas is None else self.open_schemas()

    @cached_property
    def framer(self) -> "PayloadFramer":
        """What finds the bodies in payloads."""
        from kolumn.values.decoders import framer_of

        return framer_of(self.format, self.framing, self.column, self.skip, self.writers)

    @property
    def type(self) -> pa.DataType:
        """Type of the column."""
        return self.of_internal.type if self.format == INTERNAL else self.decoder.type

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns that this one is decoded for."""
        return (self.column, *beside(self.column))

    def option(self, name: str) -> str:
        """The name of a parameter."""
        return f"{self.column}_{name}"

    def of(self, reader: Schema | object, open_schemas: Callable[[], Schemas] | None = None) -> "Typed":
        """The same with what is known of the source."""
        return replace(self, reader=reader, open_schemas=open_schemas)


def typed_of(options: Mapping[str, Any]) -> tuple[Typed, ...]:
    """The typed columns that a call asks for, keys first; `ArgumentError` for a value that is not allowed, or an option that its format
    lacks.
    """
    if options["decode"] is not None:
        return _of_internal(options)
    found = []
    for column in ("key", "value"):
        own = {name.partition("_")[2]: value for name, value in options.items() if name.startswith(f"{column}_")}
        if own["format"] is None:
            named = [name for name, value in own.items() if value != PAYLOAD_DEFAULTS[f"{column}_{name}"]]
            if named:
                names = ", ".join(f"{column}_{name}" for name in named)
                raise ArgumentError(f"options of {column}s, here {names}, go with {column}_format")
            continue
        found.append(_checked(column, own))
    return tuple(found)


def _of_internal(options: Mapping[str, Any]) -> tuple[Typed, ...]:
    if options["decode"] not in get_args(Decode):
        raise ArgumentError(f"decode={options['decode']!r}: {_expected(options['decode'], get_args(Decode))}")
    named = [name for name, value in options.items() if name.partition("_")[0] in ("key", "value") and value != PAYLOAD_DEFAULTS[name]]
    if named:
        raise ArgumentError(f"decode={INTERNAL!r} decodes keys and values: leave out {', '.join(named)}")
    return Typed("key", INTERNAL), Typed("value", INTERNAL)


def _checked(column: str, own: dict[str, Any]) -> Typed:
    format, flat = own["format"], own.pop("as")
    for name, value in (("format", format), ("as", "struct" if flat is None else flat), ("errors", own["errors"])):
        if value not in _CHOICES[name]:
            raise ArgumentError(f"{column}_{name}={value!r}: {_expected(value, _CHOICES[name])}")
    for name, owners in _OWNERS.items():
        if own[name] != PAYLOAD_DEFAULTS[f"{column}_{name}"] and format not in owners:
            raise ArgumentError(f"{column}_{name}={own[name]!r}: for {column}_format={' or '.join(map(repr, owners))} only")
    for name, least in (("skip", 0), ("sample", 1)):
        if isinstance(own[name], bool) or not isinstance(own[name], int) or own[name] < least:
            raise ArgumentError(f"{column}_{name}={own[name]!r}: expected an integer, at least {least}")
    check_separator(own["separator"], format, column)
    if format in SCHEMALESS and own["schema"] is None:
        raise ArgumentError(f"{column}_format={format!r} needs {column}_schema, a mapping of names to types")
    names = own.pop("columns")
    return Typed(column, columns=_names(names, f"{column}_columns"), flat=flat == "columns", **own)


def _names(given: object, option: str) -> tuple[str, ...] | None:
    if given is None:
        return None
    names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Iterable) else ()
    if isinstance(given, Mapping) or not names or not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"{option}={given!r}: expected names of fields")
    return names


def _expected(value: object, choices: tuple[str, ...]) -> str:
    near = get_close_matches(str(value), choices, 1)
    return f"expected one of {', '.join(choices)}" + (f"; did you mean {near[0]!r}?" if near else "")
