"""Typed keys and values: what is in the payloads of records, as columns. Decisions:

* Payloads are typed in the thread that made the record batch, before the next chunk is decoded, so memory stays bounded as for any read.
  The type is known before a read begins; writers' schemas are looked up when a record names one.
* A schema is a program: for each writer's schema, steps (Avro) or field tables (Protobuf) say what becomes of the bytes in the reader's
  columns. The interpreters are scalar functions as the formats are, so the same code runs on a GPU, where a thread writes one value.
* A bad value is one bad row, null and marked. `ends[row]`, where the bytes or the list of a row begin, is the only state of a half-written
  record: it is undone by setting back a count for each level of lists, and columns that are full are grown before it is written again.
* Where a skipped Avro field ends depends on all fields before it. In a block of 256 rows one field of all rows is passed over before the
  next one; rows with long numbers or unusual lists are read by their program.
* What is valid is what the format's own library says: fastavro, `protobuf`, Python's json. Where Arrow demands more (UTF-8 in strings) the
  docstring of the decoder says so.
"""
