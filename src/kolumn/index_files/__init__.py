"""The files that brokers keep next to segments: as tables, compared with the log, and written anew."""
