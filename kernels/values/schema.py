"""How the payloads of a typed column are decoded on the device, or that the host has to decode them."""

from dataclasses import dataclass

from kolumn.core.errors import ArgumentError
from kolumn.core.schema import beside
from kolumn.kernels.values.bodies import DeviceFramer
from kolumn.kernels.values.message_columns import Messages
from kolumn.kernels.values.typed import kind_of
from kolumn.values.avro.decoder import AvroDecoder
from kolumn.values.memory import nodes
from kolumn.values.protobuf.decoder import ProtobufDecoder
from kolumn.values.typed import Typed


@dataclass(frozen=True)
class Values:
    """How the payloads of a column are decoded: what the call asks for, with its types; ``messages`` of "protobuf"."""

    typed: Typed
    framer: DeviceFramer
    messages: Messages | None = None

    @classmethod
    def of(cls, typed: Typed) -> "Values":
        """How a device decodes a column, whose types are known; `ArgumentError` with the reason if the host has to decode it."""
        if typed.errors == "raise":
            raise ArgumentError("the first value that is not valid is looked for on the host")
        if typed.kind == "avro":
            assert isinstance(typed.decoder, AvroDecoder)
            for node in nodes(typed.decoder.layout.root):
                kind_of(node.type)
            return cls(typed, DeviceFramer(typed.framer))
        if typed.kind == "protobuf":
            assert isinstance(typed.decoder, ProtobufDecoder)
            return cls(typed, DeviceFramer(typed.framer), Messages.of(typed.decoder))
        raise ArgumentError(f"{typed.kind}: decoded on the host")

    @property
    def names(self) -> tuple[str, ...]:
        """The column and those beside it: flags of validity, schema ids, payloads."""
        return (self.typed.column, *beside(self.typed.column))
