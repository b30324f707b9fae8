"""Stage 2 on the CPU: payloads are located and decompressed."""
