"""Makes the framing functions of all codecs callable from compiled code. Modules with loops or kernels over framings import this one."""

from kolumn.codecs import gzip, known, lz4, plain, snappy, xxh32, zstd
from kolumn.machine_code import scalar

scalar.scalar(xxh32, plain, lz4, snappy, zstd, gzip)
scalar.known(known.CHOSEN)
