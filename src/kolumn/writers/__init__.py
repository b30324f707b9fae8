"""Columns become segments.

* Entries with their records come from `log/pieces.py`, some MiB at a time. They are written by the encoders' `regroup` (an entry keeps its
  header) or `group` (the header follows from the records). An encoder's last batch waits: rows of a batch that is not full are encoded
  again with the first rows of the next piece, since batches must not depend on pieces.
* Sizes are counted, not encoded: `kolumn.space` takes the same steps as a conversion up to the entries (`regrouped`), and adds up lengths
  of fields. Only what a codec saves has to be tried, on a part of the batches.
* Messages are encoded some thousand at a time (`in_parts`), so that their table stays in the CPU's cache.
* Format 2 becomes messages without columns (`cpu_fallback/encode/rewrite.py`), and compaction filters its batches as bytes
  (`cpu_fallback/encode/rewrite.py`). All that these loops do not know takes the way through columns, and tests compare both.
* Compaction builds the key map only once. Pass one keeps each key's last offset (`cpu_fallback/encode/key_map.py`): whole keys are
  compared, and the seed of the hash is secret. Pass two keeps a record if its offset is in that set, which is enough, because offsets are
  unique. To count in pass one what stays of each batch was tried: at most 1.2 times as fast for the whole call, with a second reader.
* Snappy is compressed by a loop of our own, since no package exports snappy's C functions. It finds the same repetitions as libsnappy, so
  batches are as large as a Java producer's; a test holds it to 1 %.
* Typed values are encoded by fastavro, `protobuf` and Python's json, a value at a time (`payloads.py`): libraries that are alive, where
  speed counts less than that a read returns what was written. Each value is compared with the schema before, since they take what they
  cannot give back.
"""
