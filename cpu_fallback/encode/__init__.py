"""The reverse: compiled loops that write batches and messages."""
