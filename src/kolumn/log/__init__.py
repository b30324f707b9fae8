"""The log by its headers: what is live, which files and bytes a read needs, its entries, and index files.

Decisions:

* A range is the whole, filtered, whatever headers say; each row is compared (`decode/host/record_batch.py`). Headers only save work,
  and only where they can be believed (`cpu_fallback/check.py`). Of format 2 the offsets are: a record outside of them is damage.
  The largest timestamp is if it is LogAppendTime. With CreateTime some producers and brokers never set it, so a range of times decodes
  all that no index leaves out. `tests/fuzz/test_range_mutants.py` makes headers lie, and compares all ways to read.
* Offsets may go back inside a file, since no checksum covers a base offset. So the walk over headers to a range's end goes on for 1 MiB
  (`log/seek.py`), and what an index leaves out is looked at for 1 MiB, on this machine. Further away they are not found.
* A segment knows which file it is. Its `Identity` (inode and time of birth; a version at a URL) travels with it, and `SegmentFile` opens
  no other file of that name, whose entries are elsewhere. The identity of an active segment includes its last bytes: if it has grown and
  still has them, it is the same file. A segment that was modified and did not grow is refused, unless it ends with zeros, as a
  preallocated one does. A change that keeps inode, size and time of modification is not noticed.
* At a URL the segments of a scan are one log. What one file may fetch ahead and does not have is fetched of the files after it, within
  the same bound (`source/read_ahead.py`). The rate is the bytes under way for each latency: at 50 ms 8 requests of 32 MiB are 5.4 GB/s.
  A listing stands for looks at sixteen segments (`source/segment_file.py`), which would be as many requests as their bytes need. The
  last look at a file is judged while the next ones are decoded; an overwritten one is an error before the scan ends.
* Of a small segment nothing is done in Python alone. What a segment costs is done for a group of some hundred by lists and arrays: a
  call of Python for each took as long as to decode it. `Segment`, `Identity` and `Range` are made without their ``__init__``.
  `tests/behaviour/test_many_segments.py` counts the calls.
* Threads cut a segment at guesses: two headers that follow one another. The thread that decodes the piece before confirms the border by
  ending there; else the pieces after it are dropped (`decode/pipeline.py`). Pieces have the same size, and their number is a multiple of
  that of the threads. How far a segment is compressed is learnt from its first 64 KiB, which are decoded once more for that.
* Threads outlive a read (`core/threads.py`): to start and to end them takes as long as to decode some MiB. Those that use a GPU end
  with the read, since each holds memory there. They all end before the process forks. A scan that goes on in a forked process raises an
  error there, and is never closed: it would wait for threads of the other process.
* Reads of format 2 do not pre-scan headers: the decoder discovers its batches, and `decode/host/chunks.py` resumes where it stopped. For
  formats 0 and 1 the streamed path keeps one row of the batch table for a stretch of messages with the same magic and attributes. It
  stops before whatever is unusual, and only what follows there gets a row for each entry, for the general path.
* A payload is decompressed once. If a batch does not fit into the columns, its decompressed bytes are kept for the next ones
  (`tests/behaviour/test_decompressed_once.py`). Columns are sized by what came before in the same file (`SizeEstimate`), and by what is
  left of a piece; only speed depends on these guesses.
* Side files are believed where the log agrees. An entry of a `.txnindex` counts only if its ABORT marker is at the offset that it
  names, a `.snapshot` only if its checksum is right. A tier has no `.txnindex` for a segment without aborts: its headers are walked
  before that is believed. A transaction whose outcome can't be decided is open, and an open transaction withholds all after its start.
* What a tier says about a copy is believed until copies contradict each other. No checksum covers a manifest. Its last offset and its
  leader epochs are compared with batches where they would give up another copy, or this one (`copies/tiers.py`). A data key that cannot
  be unwrapped is damage if its private key unwraps others, else the wrong private key.
* Leader epochs decide which copies are the log (`copies/elections.py`; KIP-101, KIP-279). A copy is a folder, a segment of a tier, or a
  file that overlaps others of its folder. Where bytes of the log itself are damaged at a change of leaders, the damaged headers tell the
  epoch if they lead from one intact entry to the next; else another copy's entries belong only if they fill the damage byte for byte.
  Where epochs do not decide and records differ, what one folder got later counts; between folders that is an error, and so are different
  topic ids. All that belongs is read once, and whatever is intact and not in the result is in the report. Each round of the merge
  discards an entry or lowers a border, which is asserted.
* A merge of copies ends in ranges: which bytes of which copy are read and, where copies cut entries differently, which offsets of them
  count (`Range.start_offset`, `Range.end_offset`). Everything after it works as for one copy. Damage is healed by a copy that is intact
  over the same offsets, or by entries that fill it byte for byte; what no copy heals is reported from the preferred copy. An offset out
  of order is damaged if an offset is missing there that the entry could have had, or if another copy has the same bytes where they fit
  better. An epoch is damaged if one entry alone contradicts its neighbours with it.
"""
