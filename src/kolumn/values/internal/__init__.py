"""Records of the topics that a cluster keeps for itself, and control records: Kafka's definitions of messages, read at run time.

Decisions:

* Definitions are data. Kafka's own files of messages are in the package, unchanged, and one reader (`values/internal/wire.py`)
  interprets them. Another version of Kafka is another set of files. Rows are decoded in Python: these topics are small. Every length
  and count is compared with the bytes that are left, and some MiB of payloads are Python objects at a time.
* Key and value belong together. A coordinator's value contains only its version; the key says which message it is. So both columns are
  decoded from the same four record columns (`LOOKS_AT`), in the stage of typed values, and not by a `ValueDecoder` of one column.
* One struct for each message, and `bytes`. The type of the columns follows from the topics of the source, so it is known before the
  read begins. A read never fails for what a newer broker has written.
* Groups are what a coordinator would load: the newest record of each key, of committed transactions alone, tombstones removed.
* A side file is wrong if a reader that believes it would miss something. It is not compared with the file that Kolumn would write:
  brokers of different versions index differently, and compaction leaves files that name offsets which are gone. No file of 117
  directories that brokers wrote is reported.
"""
