"""Contents of entries beyond offsets, keys and values. A conversion to a layout that cannot hold one of them loses it."""

TIMESTAMPS = "timestamps"
APPEND_TIMES = "LogAppendTime types"
HEADERS = "headers"
PRODUCERS = "producer ids, epochs and sequences"
TRANSACTIONS = "transactional flags"
MARKERS = "COMMIT and ABORT markers"
OTHER_CONTROL = "control records of other types"
TYPED_CONTROL = "control messages of the enriched format"
LEADER_EPOCHS = "leader epochs"
HORIZONS = "delete horizons"
EMPTY = "empty batches"
DELETES = "payloads of tombstones"
TOMBSTONES = "records without a value that become tombstones"
SECONDS = "timestamps in seconds beside the broker's"

RECORD_BATCH = frozenset(
    {TIMESTAMPS, APPEND_TIMES, HEADERS, PRODUCERS, TRANSACTIONS, MARKERS, OTHER_CONTROL, LEADER_EPOCHS, HORIZONS, EMPTY}
)
"""The contents that a record batch can hold."""
