"""Protobuf's messages as columns: schemas, types, programs for the interpreter in `kolumn.values.wire.protobuf`, and the decoder."""
