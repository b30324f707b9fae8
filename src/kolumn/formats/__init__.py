"""One file per format: pure scalar functions, the readable reference of what the bytes mean.

`entry` frames an entry, `layouts` finds the format and the functions for the rest of it.

Decisions:

* Layouts, not magics. A row of the batch table has the *layout* of its entry, where its payload begins and where its checksum is.
  Stages never use the magic, because the drafts reuse magics. The shipped formats alone are streamed; all else takes the general path.
* Facts, not names. A format's file declares what is true of its layouts; stages ask for a fact (is it a wrapper, where is its checksum)
  and name no layout. Compiled code cannot look into a table of objects, so `formats/layouts.py` packs a fact of all layouts into one
  number, and makes a chain of comparisons of their functions, which the compiler resolves. Some files name a layout all the same, each for
  a path that only this layout has; `tests/packaging/test_names.py` lists them.
* A draft can be tried from outside. `KOLUMN_FORMATS` names modules with a `FORMAT`; the fingerprint of machine code covers them.
  `tests/behaviour/test_new_format.py` reads, verifies, recovers and converts one that is in the test tree alone, on both backends.
* Compact format 3 has its magic after a varint, so the frame decides what an entry is. Where a shipped entry would fit too, its
  checksum decides.
* An enriched index has times, and `kolumn.apply_retention` begins its search there. Reads use only its offsets, because a wrong time
  could not be noticed without reading the log.
"""
