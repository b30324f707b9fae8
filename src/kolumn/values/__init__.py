"""Typed keys and values: what is in the payloads of records, as columns. Decisions:

* Payloads are typed in the thread that made the record batch, before the next chunk is decoded, so memory stays bounded as for any read.
  The type is known before a read begins; writers' schemas are looked up when a record names one.
* A schema is a program: for each writer's schema, steps (Avro) or field tables (Protobuf) say what becomes of the bytes in the reader's
  columns. The interpreters are scalar functions as the formats are, so the same code runs on a GPU, where a thread writes one value.
* The unit of loss is the field: one that cannot be decoded is null, its siblings stay, and the row names it (``valueProblems``). A compiled
  loop fills the columns. The rows that it does not return as valid are read again by a plain reader, one by one, which says what is lost
  (`ValueDecoder.salvage`). So tidy rows pay nothing, and a loop may leave to that reader what is rare.
* A type that contains itself is nested ``max_depth`` times, and is JSON text below. What no other type holds is JSON text too
  (`extensions.JSON_TEXT`, Arrow's ``arrow.json``). A union of several types is a struct with a field for each of them.
* In a loop `ends[row]`, where the bytes or the list of a row begin, is the only state of a half-written record: it is undone by setting
  back a count for each level of lists, and columns that are full are grown before it is written again.
* Where a skipped Avro field ends depends on all fields before it. In a block of 256 rows one field of all rows is passed over before the
  next one; rows with long numbers or unusual lists are read by their program.
* What is valid is what the format's own library says: fastavro, `protobuf`, Python's json. Where Arrow demands more (UTF-8 in strings) the
  docstring of the decoder says so.
"""
