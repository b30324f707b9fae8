"""Records of the topics that a cluster keeps for itself, and control records: Kafka's definitions of messages, read at run time. Decisions:

* Kafka's own files of messages are in the package, unchanged; another version of Kafka is another set of files. Rows are decoded in Python:
  these topics are small.
* A coordinator's value contains only its version; the key says which message it is. So both columns are decoded from the same record
  columns (`LOOKS_AT`), and not by a `ValueDecoder` of one column.
* The columns have a struct for each message of the source's topics, and `bytes`. A read never fails for what a newer broker has written.
"""
