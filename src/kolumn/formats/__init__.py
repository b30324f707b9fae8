"""One file per format: pure scalar functions, the readable reference of what the bytes mean.

`entry` frames an entry, `layouts` says which file knows the rest.
"""
