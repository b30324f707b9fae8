"""Columns become segments.

Decisions:

* Entries with their records come from `log/pieces.py`, some MiB at a time, for conversion, compaction and accounting. They are written
  by the encoders' `regroup` (an entry keeps its header) or `group` (the header follows from the records).
* Sizes are counted, not encoded. `kolumn.space` takes the same steps as a conversion up to the entries (`regrouped` in
  `writers/conversion/regroup.py`), and adds up lengths of fields. Only what a codec saves has to be tried, on a part of the batches.
* Messages are encoded some thousand at a time (`in_parts`): without a codec each is an entry, and a table of all would leave the CPU's
  cache. One loop writes them and their rows of that table.
* Format 2 becomes messages without columns (`writers/conversion/down_conversion.py`, loop `cpu_fallback/encode/down_convert.py`) where
  all that a record loses follows from its batch. Headers, markers, transactions, LogAppendTime and codecs take the way through columns,
  and tests compare both.
* Compaction builds the key map only once. Pass one keeps each key's last offset, in a table of our own
  (`cpu_fallback/encode/key_map.py`): whole keys are compared, and the seed of the hash is secret. Pass two keeps a record if its offset
  is in that set. This is enough because offsets are unique. In Spark the keys are shuffled and offsets come back.
* Compaction filters batches of format 2 as bytes. One loop leaves records out and writes the others as the encoder would
  (`cpu_fallback/encode/filter.py`), with a delete horizon where a tombstone stays. It says so if all records stay, and the batch is
  copied. Markers, LogAppendTime, records of aborted transactions, damage and all other formats take the way through columns
  (`writers/compaction/rewrite.py`), and tests compare both. To count in pass one what stays of each batch, so that pass two leaves
  whole batches compressed, was tried: at most 1.2 times as fast for the whole call, with a second reader.
* Snappy is compressed by a loop of our own, since no package exports snappy's C functions. It looks for repetitions as libsnappy does
  and finds the same ones, so batches are as large as a Java producer's; a test holds it to 1 %.
* An encoder's last batch waits. Records arrive in pieces of any size, and batches must not depend on that: the rows of a batch that is
  not full are encoded again with the first rows of the next piece. The tests compare the bytes.
"""
