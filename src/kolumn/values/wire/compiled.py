"""Makes the scalar functions of all encodings callable from compiled code. Modules with loops or kernels over values import this one."""

from kolumn.formats.machine_code.scalar import scalar
from kolumn.values.wire import avro, columns, framing, json, json_numbers, json_text, protobuf, protobuf_wire, text

scalar(text, framing, columns, json_numbers, json_numbers, avro, avro, protobuf_wire, protobuf, protobuf)
scalar(json_numbers, json_numbers, json_text, json)
