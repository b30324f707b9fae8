"""Makes the scalar functions of all encodings callable from compiled code. Modules with loops or kernels over values import this one."""

from kolumn.encodings import columns, protobuf, protobuf_wire, text
from kolumn.machine_code.scalar import scalar

scalar(text, columns, protobuf_wire, protobuf)
