"""Ranges of segments become Arrow record batches: chunk by chunk, in order, on the CPU or on a GPU."""
