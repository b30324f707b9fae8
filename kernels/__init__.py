"""The stages on a GPU. Only this package imports CUDA, and it is imported only when a GPU is asked for.

Decisions:

* A body, three shells. A kernel's body is a scalar function of an item's number and a named tuple of 64-bit integers, addresses mostly.
  The shell for CUDA finds the item. Tests run the same body as a loop on the CPU, and the PTX of the CUDA shell on a machine that
  `tests/kit/ptx.py` makes. So code compiled ahead of time needs no Numba where it runs.
* Kernels are compiled by what compiles the loops: Numba's front end and the LLVM that it brings, whose target NVPTX makes PTX. A
  compiler for CUDA alone would be one more package that has to fit Python and NumPy, and made a quarter more machine instructions.
* Whole chunks take turns on the device, not stages. Each thread has a stream of its own, and three chunks may be on the device: while
  one is copied in, one is decoded and one copied back. That bounds memory, and needs no hand-over between stages.
* A chunk waits for the device twice: for checksums and fields together with the sizes of columns, and for the columns. It waits once
  more for headers, for the counts of records that headers do not tell, and twice for compressed batches: for their blocks and
  checksums, since nvCOMP must not see wrong bytes, and for what it did. A wrong checksum is rare, so plain records are decoded before
  it is known, and again after it was found. What kernels need together is allocated together. `tests/gpu/test_round_trips.py` holds the
  limits.
* Page-locked memory is for bytes on their way. At most 2 GiB of it exist (`core/recycle.py`); where there is no more, memory is ordinary
  and copies are slower. Columns come back through a page-locked block into ordinary memory (`kernels/machine/staging.py`): a table may
  live long. A chunk leaves its turn between the two copies, and six of them are emptied at a time: more would lock new memory in each read.
* No stream ends before the process: a thread that ends passes its runtime on (`kernels/machine/device.py`).
* Running sums by CuPy's binding of CUB, ``cupy.cuda.cub.device_scan``: ``cupy.cumsum(out=)`` copies by a kernel first that NVRTC
  compiles, which takes seconds, headers and a writable home. `tests/gpu/test_cuda.py` looks into the binding's library.
* The host reads what it has to look at. With GPUDirect Storage the host reads the headers of batches, and the rest goes from the disk
  to the device. The host also reads formats 0 and 1, what its own codecs decompress, and entries that an error is about.
* The device frames what it decompresses (`kernels/frame.py`), a thread per payload, by the functions that the CPU's loop calls. Blocks
  get slots by the payload's size, so that one launch lists them all; a payload with more blocks than slots is the CPU's.
* Work is split twice. Before decompression it is cut by what payloads may need, up to 2 GiB: nvCOMP is at its best with many blocks.
  What came out is cut by its true size and its rows, up to 128 MiB, since columns come back by page-locked blocks. Neither takes more
  than a sixteenth of the pool, of which three chunks have to live. Hence 32-bit offsets in every column.
* CRC by aligned rows of 128 bytes: entries begin anywhere, loads should not (`kernels/check.py`). The chain of record lengths is cut where
  batches are few and large (`kernels/fields/hop.py`).
* nvCOMP gets only batches with a sound framing and a right checksum, through its C interface, with a status for each block. Its output
  is compared with what the stream claims: sizes, and gzip's CRC-32 by our kernel, since the library checks neither. Payloads in which a
  second gzip member could begin, and zstd frames with a checksum of their contents, go to the CPU. With `check_crcs=False` checksums of
  compressed batches are compared all the same: broken bytes in nvCOMP can cost the process its GPU.
* A block gets the room that it can need, 128 KiB for each zstd frame of Java's. With a part for each 128 MiB of that nvCOMP took five
  times as long as in one call with just enough room (7.4 and 1.5 ms for 64 MiB on an H200). Room by guess, and once more where it was
  too little, was tried: there nvCOMP 5.3 wrote past the room of a zstd frame, and called lz4 blocks right that it had cut.
* Memory that cuDF has seen is freed after cuDF's work (`kernels/machine/staging.py`).
* Rows are chosen before payloads move, and names (topics, codecs) are payloads that many rows point to.
"""
