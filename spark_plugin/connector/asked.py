"""What the connector's questions have in common: the options of a table, and its columns."""

import json
from collections.abc import Mapping
from typing import cast

from pyspark.sql.types import StructType

from kolumn.spark_plugin.connector.wire import Json
from kolumn.spark_plugin.options.read import LoadOptions
from kolumn.spark_plugin.read.schema import spark_schema, with_columns
from kolumn.spark_plugin.read.splits import with_types_of

_REMEMBERED = 16
_typed: dict[str, LoadOptions] = {}
"""Options with the types of values, by their texts: a query asks for the schema first, and means the same types when it asks for a plan."""


def given(question: Json) -> Mapping[str, str]:
    """The options as the user gave them."""
    return cast(Mapping[str, str], question["options"])


def options_with_types(question: Json) -> LoadOptions:
    """The options of a table whose columns nobody has named yet."""
    options = with_types_of(LoadOptions.of(given(question)))
    if options.decode.typed:
        while len(_typed) >= _REMEMBERED:
            _typed.pop(next(iter(_typed)))
        _typed[_key(question)] = options
    return options


def options_of(question: Json) -> LoadOptions:
    """The options of a table with the columns of its schema."""
    schema = struct(question["schema"])
    known = _typed.get(_key(question))
    if known is None or spark_schema(known.decode.schema, known.payload) != schema:
        known = with_types_of(LoadOptions.of(given(question)))
    return with_columns(known, schema)


def strings(found: object) -> tuple[str, ...]:
    """A list of strings, which may be missing."""
    return tuple(cast(list[str], found or []))


def struct(text: object) -> StructType:
    """A schema from its JSON."""
    return StructType.fromJson(json.loads(cast(str, text)))


def _key(question: Json) -> str:
    return json.dumps(given(question), sort_keys=True)
