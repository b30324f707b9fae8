"""What the bytes of typed values mean, as scalar functions: Avro, Protobuf, JSON, and what precedes them."""
