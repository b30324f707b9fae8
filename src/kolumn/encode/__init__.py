"""Encoding: columns become segments.

`table` converts an Arrow table to arrays, `batches` encodes entries, `compress` contains the codecs, `segments` writes the files.
"""
