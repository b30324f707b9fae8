"""Errors in a framing: the numbers that `header` and `block` return, and their texts."""

(
    CUT, MAGIC, VERSION, RESERVED, DICTIONARY, LINKED, BLOCK_MAXIMUM, HEADER_CHECKSUM, BLOCK_LENGTH, BLOCK_CHECKSUM, EMPTY, PREAMBLE,
    INNER_HEADER, METHOD, TRAILER, WINDOW, BLOCK_TYPE, CONTENT_SIZE, CONTENT, TOO_LARGE, CODEC,
) = range(1, 22)  # fmt: skip
TEXT = {
    CUT: "a stream that is cut short",
    MAGIC: "bytes that do not begin a stream of this codec",
    VERSION: "an unknown version in the stream's header",
    RESERVED: "a reserved bit that is set in the stream's header",
    DICTIONARY: "a stream that needs a dictionary",
    LINKED: "an lz4 frame with linked blocks",
    BLOCK_MAXIMUM: "an unknown maximal block size",
    HEADER_CHECKSUM: "a wrong header checksum",
    BLOCK_LENGTH: "a block length out of bounds",
    BLOCK_CHECKSUM: "a wrong block checksum",
    EMPTY: "no bytes at all",
    PREAMBLE: "a decompressed size that the block cannot hold",
    INNER_HEADER: "a broken header between two blocks",
    METHOD: "a compression method that is not deflate",
    TRAILER: "a checksum or size that does not agree with the decompressed bytes",
    WINDOW: "a window of more than 128 MiB",
    BLOCK_TYPE: "an unknown type of block",
    CONTENT_SIZE: "a content size that the blocks cannot hold",
    CONTENT: "compressed bytes that do not decode",
    TOO_LARGE: "a size above the limit",
    CODEC: "an unknown codec",
}
