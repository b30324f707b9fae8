"""The way back: columns become segments.

`table` takes an Arrow table apart, `batches` makes entries of it, `compress` has the codecs, `segments` the files.
"""
