"""A chunk on the CPU: how headers cut it, and the steps check, decompress, count, fields and columns, called one after the other."""
