"""Columns of the batch table: one row of int64 for each entry of a segment, filled by a format's ``header``.

The table is a C-contiguous NumPy array of shape (entries, `WIDTH`), dtype int64, in host memory.
"""

POSITION = 0  # of the entry, bytes from the start of the segment
SIZE = 1  # of the whole entry, bytes: 12 + the length field
BASE_OFFSET = 2
LAST_OFFSET = 3  # UNKNOWN for enriched wrappers whose offsets may have holes
COUNT = 4  # records; UNKNOWN for wrappers and sets whose header does not contain it
MAGIC = 5
CODEC = 6
CRC = 7  # unsigned
TIMESTAMP_TYPE = 8  # one of the three below
BASE_TIMESTAMP = 9  # ms, the unchanged field (the delete horizon if DELETE_HORIZON is 1)
MAX_TIMESTAMP = 10  # ms
PRODUCER_ID = 11
PRODUCER_EPOCH = 12
BASE_SEQUENCE = 13
LEADER_EPOCH = 14
TRANSACTIONAL = 15  # 0 or 1
CONTROL = 16  # 0 or 1
DELETE_HORIZON = 17  # 0 or 1: BASE_TIMESTAMP is a delete horizon
LAYOUT = 18  # number of the layout in formats/layouts.py
PAYLOAD = 19  # position of the records, bytes from the entry's first; 0 for messages
CRC_FROM = 20  # first byte that the checksum covers, bytes from the entry's first
ATTRIBUTES = 21  # of the entry, unchanged
CODE = 22  # errors.Code of the first error
RECORD = 23  # index of the record to blame, or -1
WHERE = 24  # position of the error within the decompressed payload, or -1
CRC_SEED = 25  # what the checksum's register differs by from its initial value: of bytes under it that are not there as they stand
BATCH_TYPE = 26  # of Redpanda's batches; 0 for the others
WIDTH = 27
NO_TIMESTAMP_TYPE, CREATE_TIME, LOG_APPEND_TIME = -1, 0, 1
"""Values of TIMESTAMP_TYPE."""
UNKNOWN = -(2**62)
"""A value that is known only after decompression, such as base offset and count of a wrapper."""
