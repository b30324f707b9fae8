"""Avro values: schemas, which column each part of a schema has, and programs that fill the columns."""
