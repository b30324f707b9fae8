"""Damage: how it is found and said, what follows it, and what the end of a segment means.

Decisions:

* The length is not under the CRC. On a wrong checksum the search first asks where the running CRC meets the stored one. If it does,
  only the length is damaged, and nothing inside the entry is taken for an entry. `damage/search.py` says what counts as evidence after
  that.
* A length that leads to an intact entry proves little. Bytes may be missing, and another entry may end there. So where offsets are
  missing between what the damaged header claims and the entry after it, the search looks for intact entries with those offsets inside.
* The search is bounded. Compiled code compares checksums at every position whose bytes could be an entry's header
  (`cpu_fallback/check.py`), within a byte budget, because a crafted file can make every position a candidate.
* Entries that repeat each other confirm each other: a block was written twice. Of two runs with the same offsets and other bytes the later
  one counts, because copies of entries may be in the damaged entry's own bytes.
* Candidates after damage can be inner messages. A damaged wrapper's codec may have stored its messages uncompressed, with valid
  checksums of their own. An offset that no index of the segment could hold rules some out; at the head of a file nothing rules out the
  rest.
* One bad record costs one record. Where a record of an entry with a right checksum is wrong, the sound ones are moved together
  (`cpu_fallback/fields/sound.py`), and the stages decode that as they decode any entry, on both backends. Lengths are the only way from
  record to record, so after a wrong one they are believed only if all of them lead to the end of the payload.
* The next segment is known from names alone. Its base offset makes a segment rolled, and `damage/segment_end.py` compares where the segment
  ends with that offset. Index files are opened only where offsets are absent, so a whole log costs nothing more. For the active segment
  index files are no proof of damage: they may have been copied, or written, after the log.
* Speculation. The plan follows lengths and runs ahead of the checksums. If a chunk loses the chain of entries, the chunks after it are
  dropped and the walk begins again where the search found the next entry.
* Remarks are found by arrays. With `Options.remarks` each decoded run is looked at in the thread that decoded it, and places are looked
  for only where something is odd. An lz4 frame with a wrong content checksum stops the streamed path, and the general path names it; on a
  GPU such frames go through the CPU's codec.
* A limit is no damage. It travels as damage does, as a stretch with a `LimitError`, so `verify` and every read agree on it. What suffices
  follows from the blocks' headers: to measure it would decompress what the limit is there to refuse.
"""
