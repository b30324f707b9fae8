"""A chunk on the CPU: the steps check, decompress, count, fields and columns, called one after the other."""
