"""Protobuf's messages as columns: schemas, types, programs for the interpreter in `kolumn.encodings.protobuf`, and the decoder."""
