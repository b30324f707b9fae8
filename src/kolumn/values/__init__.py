"""Typed keys and values: what is in the payloads of records, as columns.

Decisions:

* It is a stage of the chunk. Payloads are typed in the thread that made the record batch, before the next chunk is decoded, so memory
  stays bounded as for any read. The type is known before a read begins; writers' schemas are looked up when a record names one.
* A schema is a program. For each writer's schema, steps (Avro) or field tables (Protobuf) say what becomes of the bytes in the reader's
  columns. The interpreters are scalar functions as the formats are, so the same code runs on a GPU. All programs of a read write the
  same columns: rows keep their order, whatever mix of schemas they have.
* Ends are the only state of a half-written record. Of bytes and of lists, `ends[row]` is where the row begins. So a bad record is
  undone by setting back a count for each level of lists, a repeated field of Protobuf can be written twice, and columns that are full
  are grown before the row is written again.
* Skipped fields are passed over field by field. Where an Avro field begins depends on all fields before it, so a row alone is a chain
  of loads that wait for each other. In a block of 256 rows one field of all rows is passed over before the next one, without a branch
  on what is in a row. This decides only rows with short numbers and ordinary lists; the others are read by the program of the row, as
  everything is on a GPU.
* A bad value is one bad row, null and marked. Nothing of it stays in any column, which mutants, guard pages and a second reader check.
* On a GPU a thread writes one value. The first pass writes the numbers of a record and notes where its texts are; running sums say
  where each begins, and texts go to their columns as payloads do. It adds up what is in lists too, and a second pass writes that, from
  the first list on: values without lists are read once. Blocks keep a copy of programs and tables in shared memory. The PTX machine
  runs both passes with races looked for. A thread cannot take back what it has written of a Protobuf message, so it leaves to the host
  what no serializer writes.
* What is valid is what the format's own library says: fastavro and Avro's specification, `protobuf`, Arrow's JSON reader. Where Arrow
  demands more (UTF-8 in strings) the docstring of the decoder says so. JSON's loop writes only rows that it is sure of, and leaves the
  others to Arrow's reader.
"""
