"""The reverse of the pipeline: compiled loops that write batches and messages."""
