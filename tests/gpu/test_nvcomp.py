"""What nvCOMP's library says of itself without a GPU: that its functions are there and take what we pass."""

from typing import Any

import pytest

from kolumn.codecs import DEFLATE, LZ4_BLOCK, SNAPPY_BLOCK, ZSTD_FRAME
from kolumn.errors import MissingError
from kolumn.kernels.machine.nvcomp import NAMES, Decompressor


@pytest.fixture(scope="module")
def library() -> Decompressor:
    try:
        return Decompressor()
    except MissingError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("kind", NAMES)
def test_blocks_are_inflated_where_they_are(library: Decompressor, kind: int) -> None:
    source, target, temporary = library.alignment(kind)
    assert (source, target) == (1, 1)
    assert temporary in (1, 8)


@pytest.mark.parametrize("kind", [LZ4_BLOCK, SNAPPY_BLOCK, DEFLATE])
def test_no_temporary_memory(library: Decompressor, kind: int) -> None:
    assert library.temporary(kind, 1000, 65536, 65536000) == 0


def test_zstd_needs_more_for_more(library: Decompressor) -> None:
    one, many = (library.temporary(ZSTD_FRAME, count, 65536, 65536 * count) for count in (1, 1000))
    assert 65536 < one < many


def test_functions_are_there(library: Decompressor) -> None:
    for kind in NAMES:
        found: Any = library._function(kind, "Async", [])
        assert found is not None
