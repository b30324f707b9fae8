"""One file per format: pure scalar functions, the readable reference of what the bytes mean.

`entry` frames an entry, `layouts` finds the format and the functions for the rest of it.
"""
