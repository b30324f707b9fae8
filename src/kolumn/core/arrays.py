"""Types of NumPy arrays by their contents. All are in host memory."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
"""Bytes of a segment, or of payloads."""
Int64s = NDArray[np.int64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.int64]
"""Rows of the batch table, of shape (n, `kolumn.formats.table.WIDTH`)."""
Row = NDArray[np.int64]
"""One row of the batch table."""
AnyArray = NDArray[Any]
"""An array of any type, including structured ones."""
