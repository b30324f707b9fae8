"""Several directories of one topic-partition: a dead broker's disk and its followers', a backup, halves of a log.

`copies` finds them and where their offsets overlap, `ranges` is what readers call, and the rest makes one log of damaged copies.
"""
