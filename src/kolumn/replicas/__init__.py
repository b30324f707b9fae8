"""Several directories of one topic-partition: a dead broker's disk and its followers', a backup, halves of a log.

`copies` finds them and says where their offsets overlap, `ranges` is what readers ask, and the rest makes one log of damaged copies.
"""
