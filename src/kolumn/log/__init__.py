"""The log of a topic partition, entry by entry: for everything that is not a read of records."""
