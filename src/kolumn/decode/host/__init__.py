"""A chunk on the CPU: check, inflate, count, fields and columns, called one after the other."""
