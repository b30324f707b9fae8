"""Schemas of Kafka Connect, as `JsonConverter` writes them beside each payload, and the names by which they, and Avro's schemas that were
made of them, say what a number or a text means. Sources: ``JsonConverter`` and ``ConnectSchema`` of Kafka 3.9,
https://debezium.io/documentation/reference/stable/connectors/mysql.html ("Data type mappings").
"""

from collections.abc import Mapping

import pyarrow as pa

from kolumn.core.text import is_text
from kolumn.values.avro_schema import SchemaNode
from kolumn.values.extensions import JSON_TEXT
from kolumn.values.retyped import TextDecimal

DELETED = "__deleted"  # The column of a change event that says whether it deletes its row; the name is that of Debezium.
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_PRIMITIVE = {
    "boolean": pa.bool_(), "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(), "float": pa.float32(),
    "float32": pa.float32(), "double": pa.float64(), "float64": pa.float64(), "string": pa.string(),
}  # fmt: skip
_MEANT: dict[str, tuple[pa.DataType, pa.DataType]] = {
    "org.apache.kafka.connect.data.Date": (pa.int32(), pa.date32()),
    "org.apache.kafka.connect.data.Time": (pa.int32(), pa.time32("ms")),
    "org.apache.kafka.connect.data.Timestamp": (pa.int64(), pa.timestamp("ms", tz="UTC")),
    "io.debezium.time.Date": (pa.int32(), pa.date32()),
    "io.debezium.time.Time": (pa.int32(), pa.time32("ms")),
    "io.debezium.time.MicroTime": (pa.int64(), pa.time64("us")),
    "io.debezium.time.NanoTime": (pa.int64(), pa.time64("ns")),
    # Of columns without a time zone.
    "io.debezium.time.Timestamp": (pa.int64(), pa.timestamp("ms")),
    "io.debezium.time.MicroTimestamp": (pa.int64(), pa.timestamp("us")),
    "io.debezium.time.NanoTimestamp": (pa.int64(), pa.timestamp("ns")),
    "io.debezium.data.Json": (pa.string(), JSON_TEXT),
}
"""What a name means where a value has the first type. Other names, such as ZonedTimestamp, are of values that stay what they are."""
_DEEPEST = 100


def of_connect(schema: object, depth: int = 0) -> tuple[pa.DataType, pa.DataType]:
    """The type in which JSON has the values of a Connect schema, and the one that is meant. What makes no sense is JSON text."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return JSON_TEXT, JSON_TEXT
    kind, name = schema.get("type"), schema.get("name")
    if kind == "struct":
        return _struct(schema, depth)
    if kind == "array":
        inner, meant = of_connect(schema.get("items"), depth + 1)
        return pa.list_(inner), pa.list_(meant)
    if kind == "map":
        keys = schema.get("keys")
        if not isinstance(keys, Mapping) or keys.get("type") != "string":
            return JSON_TEXT, JSON_TEXT  # a list of lists of two
        inner, meant = of_connect(schema.get("values"), depth + 1)
        return pa.map_(pa.string(), inner), pa.map_(pa.string(), meant)
    if kind == "bytes":
        type = _decimal(schema.get("parameters")) if name == _DECIMAL else pa.binary()
        # Decimals are text or numbers, as the converter was told.
        return type if pa.types.is_binary(type) else JSON_TEXT, type
    if not isinstance(kind, str) or kind not in _PRIMITIVE:
        return JSON_TEXT, JSON_TEXT
    return _PRIMITIVE[kind], _meant(name, _PRIMITIVE[kind])


def _struct(schema: Mapping[str, object], depth: int) -> tuple[pa.DataType, pa.DataType]:
    own = {str(field.get("field")): field for field in fields_of(schema)}
    # A name that is not UTF-8 is no name of a column.
    parts = {name: of_connect(field, depth + 1) for name, field in own.items() if is_text(name)}
    if not parts:
        return JSON_TEXT, JSON_TEXT
    read = pa.struct([(name, type) for name, (type, _) in parts.items()])
    if schema.get("name") == _VARIABLE and set(parts) == {"scale", "value"}:
        return read, TextDecimal(0)
    return read, pa.struct([(name, type) for name, (_, type) in parts.items()])


def fields_of(schema: Mapping[str, object]) -> list[Mapping[str, object]]:
    """The schemas of the fields of a struct."""
    fields = schema.get("fields")
    return [field for field in fields if isinstance(field, Mapping)] if isinstance(fields, list) else []


def _decimal(parameters: object) -> pa.DataType:
    given = parameters if isinstance(parameters, Mapping) else {}
    try:
        scale, precision = int(given.get("scale", 0)), int(given.get("connect.decimal.precision", 38))
    except (TypeError, ValueError):
        return pa.binary()
    precision = max(precision, scale, 1)
    if precision > 76 or scale < -76:
        return TextDecimal(scale)
    return pa.decimal128(precision, scale) if precision <= 38 else pa.decimal256(precision, scale)


def _meant(name: object, type: pa.DataType) -> pa.DataType:
    read, meant = _MEANT.get(str(name), (None, type))
    return meant if type == read else type


def of_avro(node: SchemaNode, type: pa.DataType) -> pa.DataType | None:
    """The type that a part of a readable Avro schema means, as `kolumn.values.avro_types.meant_type` asks for it."""
    if node.kind == "record":
        return pa.string() if node.name == _VARIABLE and [part.name for part in type] == ["scale", "value"] else None
    return None if node.kind in ("union", "array", "map") else _meant(node.meant, type)
