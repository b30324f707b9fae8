"""Several directories of one topic-partition: a dead broker's disk and its followers', a backup, halves of a log.

`copies` finds them and where their offsets overlap, readers call `ranges`, and the other modules make one log of damaged copies.
"""
