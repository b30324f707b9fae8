"""Makes the scalar functions of all encodings callable from compiled code. Modules with loops or kernels over values import this one."""

from types import FunctionType

from kolumn.core.deferred import register_jitable
from kolumn.formats.words import known, scalar
from kolumn.values.wire import avro, columns, framing, json, json_numbers, protobuf, protobuf_wire

# These are not inlined: they would be long in each place that calls them, and few values need them.
_APART = (json.is_text, json.escape_at, json.after_value, json.field_of, json.put_raw, json.lose, json.is_twice, json.put_key)
scalar(columns, framing, json_numbers, avro, protobuf_wire, protobuf)
own = [function for function in vars(json).values() if isinstance(function, FunctionType) and function.__module__ == json.__name__]
known(function for function in own if function not in _APART)
for function in _APART:
    register_jitable(function)
