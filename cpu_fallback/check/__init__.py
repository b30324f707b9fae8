"""Stage 1 on the CPU: entries are framed by their headers, and their checksums are compared."""
