"""Stage 4 on the CPU: the fields of each record are decoded and written to their columns."""
