"""The pipeline on the CPU: compiled loops over the scalar functions of `kolumn.formats`, and the memory of Arrow columns.

Decisions:

* What is under way is counted decompressed. Each chunk has a share of `memory_bytes` (`Options.inflated_bytes`). A worker stops where its
  share is used up, or before a batch that is larger, and hands back the entries that are left (`Decoded.rest`). The consumer decodes those
  in order, when nothing before them is held. So the sum is the shares and one batch. A payload that passes 16 MiB is measured before memory
  is taken: the decoder runs once without an output. A decompression bomb takes time and nothing else.
* Memory is used again (`core/recycle.py`): fresh pages cost more than decoding into them. At most 128 MiB wait for that; pages that are not
  written count too, so columns must not be made far too large. When 128 MiB wait, blocks of the sizes that were asked for longest ago go
  first. Otherwise a read of another kind would find no room to keep its own.
* Columns of a chunk are two blocks (`cpu_fallback/columns.py`): values, and all else. A block costs some calls of Python, and what these
  touch is no longer in the CPU's cache after 8 MiB of records. Values can be dropped or decoded without the rest.
* Raw addresses. Compiled helpers take the address of a buffer, since Numba counts references to arrays at every call. The scalar
  functions are forced inline: without that, the hop takes a third longer. Every buffer ends with 64 bytes that may be read and written, so
  that copies go in steps of 32 bytes.
* The cache of machine code is keyed by a fingerprint of all sources that can end up in it: Numba would look at the outermost function's
  file only. What is in the cache is run, so a folder counts only if nobody else could have written to it.
* A loop is object code that knows neither Python nor Numba. Its one function takes the arguments as 64-bit words and calls nothing but
  `memcpy` and `pread`. So one build serves every version of Python and Numba, and a process that has code imports no Numba: half of the
  time until the first batch was spent there. Decorators only note what Numba has to know (`core/deferred.py`). The package
  brings code by level of processor; the JIT is what is left for the others.
* Loops are compiled in the process that needs them, under the lock of a file, and in a thread: LLVM does not react to signals, but a main
  thread that waits is interrupted at once. Annotations tell the types of a loop's arguments before it is called.
* Checksums are computed by ISA-L, or by tables where its package does not export the functions (`cpu_fallback/machine/crc.py`).
* Codecs. The framing is ours (what is a block, which checksum covers which bytes), the decompression is a library's. The exception is
  `cpu_fallback/inflate/unpack.py`: inside the streamed path compiled code decompresses batches, and the result is in the CPU's cache when
  its records are read. A call into a Python package for each batch cost more than everything else together for lz4 and snappy. So
  compiled code calls ISA-L, liblz4 and libzstd, which packages export. No package exports libsnappy: snappy blocks are decompressed
  here, by code that accepts a subset of what the library accepts (a test compares them on mutants) and passes the rest to it.
"""
