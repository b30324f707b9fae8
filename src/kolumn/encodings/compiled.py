"""Makes the scalar functions of all encodings callable from compiled code. Modules with loops or kernels over values import this one."""

from kolumn.encodings import (
    avro,
    avro_skip,
    columns,
    floats,
    framing,
    json,
    json_numbers,
    json_text,
    json_words,
    numbers,
    protobuf,
    protobuf_tables,
    protobuf_wire,
    text,
)
from kolumn.machine_code.scalar import scalar

scalar(text, framing, columns, numbers, floats, avro_skip, avro, protobuf_wire, protobuf_tables, protobuf)
scalar(json_words, json_numbers, json_text, json)
