"""One real Spark session for all tests of this folder."""

from pathlib import Path

import pytest

from kit.corpus import HERE as CORPUS
from kit.spark_session import spark

__all__ = ["spark"]


@pytest.fixture
def segment() -> Path:
    """A segment of some hundred KiB and dozens of batches."""
    return CORPUS / "v2-java" / "java-zstd-0" / "00000000000000000000.log"


@pytest.fixture
def small_segments() -> Path:
    """A directory of segments of some 20 KB each."""
    return CORPUS / "v2-many-segments" / "many-segments-0"
