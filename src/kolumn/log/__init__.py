"""The log by its headers: which files and bytes a read needs, and where they are cut into chunks; batches, transactions and index files.

Decisions:

* A range is the whole, filtered, whatever headers say; each row is compared (`decode/host/record_batch.py`). Headers only save work,
  and only where they can be believed (`cpu_fallback/check/walk.py`). Of format 2 the offsets are: a record outside of them is damage.
  The largest timestamp is if it is LogAppendTime, which then *is* the time of all records. With CreateTime some producers and brokers
  never set it, so a range of times decodes all that no index leaves out. A wrapper's header says nothing of the offsets in it.
  `tests/fuzz/test_range_mutants.py` makes headers lie, and compares all ways to read.
* Offsets may go back inside a file, since no checksum covers a base offset. So the walk over headers to a range's end goes on for 1 MiB
  or to the end of the segment (`log/narrow.py`), and what an index leaves out is looked at for 1 MiB, on this machine. Further away
  they are not found. Which offsets a segment has, names tell.
* An index is a hint (`log/seek.py`): an index entry counts only if the log has at its position the entry that it names, and that
  entry's length leads to another one. Then it is believed that nothing before has a larger offset or timestamp: it is as right as the
  headers that it was made from. So segments of less than 1 MiB are read without an index, and -1 in a time index says nothing.
* A segment knows which file it is. Its `Identity` (inode and time of birth; a version at a URL) travels with it, and `SegmentFile`
  opens no other file of that name: another file has its entries elsewhere, and rows would be missing without a word. An open file may
  be renamed or deleted. The identity of an active segment includes its last bytes. A segment that has grown is the same file if it
  still has them; otherwise it was cut and appended to, or copied over. A rolled segment does not grow. A segment that was modified and
  did not grow is refused, unless it ends with zeros, as a preallocated one does. A change that keeps inode, size and time of
  modification is not noticed.
* At a URL the segments of a scan are one log. What one file may fetch ahead and does not have is fetched of the files after it, within
  the same bound (`source/read_ahead.py`). The rate is the bytes under way for each latency: at 50 ms 8 requests of 32 MiB are 5.4 GB/s,
  and larger answers cost fresh pages. So a request has up to 32 MiB, and what is left of a file is divided equally. Only half of the
  bound is used until a reader has waited, or is so fast that it soon would. The last look at a file is judged while the next ones are
  decoded; an overwritten one is an error before the scan ends, after rows of others.
* A listing is a look at many files (`source/looks.py`). Two looks at each segment of 64 MiB would be as many requests as its bytes
  need, so one listing stands for sixteen of them where a store sends the folder in one answer. The last look at a file begins after its
  last byte was fetched, with that of fifteen others; the first one may be some segments old. A listing only says that a file is the one
  that was found: else the file itself is asked for.
* Of a small segment nothing is done in Python alone. What a segment costs is done for a group of some hundred by lists and arrays: a
  call of Python for each took as long as to decode it. `Segment`, `Identity` and `Range` are made without their ``__init__``, which
  would take longer than the look at the file; what is not set in such an object has the default of its class.
  `tests/behaviour/test_many_segments.py` counts the calls.
* Threads cut a segment at guesses. Two headers that follow one another are taken for a border. The thread that decodes the piece before
  it confirms it by ending there; else the pieces after it are dropped (`decode/pieces.py`). A walk over all headers would be a call of
  the system for each batch. Pieces have the same size, and their number is a multiple of that of the threads, so that no thread waits
  for the last one. How far a segment is compressed is learnt from its first 64 KiB, which are decoded once more for that: by a guess,
  lz4 was cut into more pieces, each with its Python.
* Threads outlive a read (`core/threads.py`): to start and to end them takes as long as to decode some MiB. Those that use a GPU end
  with the read, since each holds memory there. They all end before the process forks, since Python warns of a fork with threads. A scan
  that goes on in a forked process raises an error there, with one thread too, and is never closed: it would wait for threads of the
  other process. The module references the executors of reads under way: the garbage collector clears weak references before it closes a
  read, and threads whose executor is garbage end.
* Reads of format 2 do not pre-scan headers. The chunk decoder discovers its batches, and `log/chunks.py` resumes where it stopped, with
  the next header if it was read.
* Messages share rows. For formats 0 and 1 the streamed path keeps one row of the batch table for a stretch of messages with the same
  magic and attributes. It stops before whatever is unusual, and only what follows there gets a row for each entry, for the general
  path.
* A payload is decompressed once. If a batch does not fit into the columns, its decompressed bytes are kept for the next ones
  (`tests/behaviour/test_decompressed_once.py`).
* Columns are sized by what came before in the same file (`SegmentFile.inflates`, `density`, `key_share`, `largest`), and by what is
  left of a piece. Full columns become a record batch and new ones begin. Only speed depends on these guesses.
* Side files are believed where the log agrees. An entry of a `.txnindex` counts only if its ABORT marker is at the offset that it
  names, a `.snapshot` only if its checksum is right. A tier has no `.txnindex` for a segment without aborts: its headers are walked
  before that is believed. With `errors="skip"` the walk for transactions compares checksums too: a damaged length could hide entries
  that the read finds. A transaction whose outcome can't be decided is open, and an open transaction withholds everything after its
  start.
* What a tier says about a copy is believed until copies contradict each other. No checksum covers a manifest. Its name has the topic,
  the partition, the base offset and the id again; its last offset and its leader epochs are compared with batches where they would give
  up another copy, or this one (`copies/tiers.py`). A data key that cannot be unwrapped is damage if its private key unwraps others,
  else the wrong private key.
* Leader epochs decide which copies are the log (`copies/elections.py`; KIP-101, KIP-279). Every copy is cut into *strands*: stretches
  of intact entries whose offsets and leader epochs never go back. A copy is a folder, a segment of a tier, or a file that overlaps
  others of its folder. The strand with the newest epoch is the log; what it knows of epochs by offset is the lineage. The others follow
  from the newest to the oldest. A strand belongs up to the last offset of an epoch that the lineage knows too: a leader has one log.
  After that it belongs until its epoch contradicts the lineage. What lies behind is superseded, and an entry across that border is cut
  there. Where bytes of the log itself are damaged at a change of leaders, the damaged headers tell the epoch if they lead from one
  intact entry to the next; else another copy's entries belong only if they fill the damage byte for byte. Where epochs do not decide
  and records differ, what one folder got later counts; between folders that is an error, and so are different topic ids. All that
  belongs is read once, and whatever is intact and not in the result is in the report: rows of the result and rows reported as
  superseded are the rows that any copy shows intact. Each round of the merge discards an entry or lowers a border, which is asserted.
* A merge of copies ends in ranges. The merge decides which bytes of which copy are read and, where copies cut entries differently,
  which offsets of them count (`Range.start_offset`, `Range.end_offset`). Everything after it works as for one copy, and damage that no
  copy heals is reported from the preferred copy. Damage is healed by a copy that is intact over the same offsets, or by entries that
  fill it byte for byte. Holes that compaction left are no evidence by themselves. Neither offsets nor epochs are under checksums. An
  offset out of order is damaged if an offset is missing there that the entry could have had, or if another copy has the same bytes
  where they fit better. An epoch is damaged if one entry alone contradicts its neighbours with it.
"""
