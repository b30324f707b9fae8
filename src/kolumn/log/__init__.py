"""The log of a topic partition, entry by entry, for all functions that do not read records."""
