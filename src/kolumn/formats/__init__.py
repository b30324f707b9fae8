"""One file per format: pure scalar functions, the readable reference of what the bytes mean.

`entry` frames an entry of any format, `FORMATS` says which file knows the rest.
"""

from kolumn.formats import legacy, v2

FORMATS = {0: legacy, 1: legacy, 2: v2}
"""Magic byte -> module with ``header`` and the record functions."""
