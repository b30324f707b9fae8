"""Columns and schemas of the tables that Kolumn returns."""

from kolumn.core.schema import (
    BATCH_SCHEMA,
    DAMAGE_SCHEMA,
    DEFAULT_COLUMNS,
    LEFT_OUT_SCHEMA,
    LOST_VALUES_SCHEMA,
    RECORD_COLUMNS,
    REMARK_SCHEMA,
    SEGMENT_SCHEMA,
)

__all__ = [
    "BATCH_SCHEMA",
    "DAMAGE_SCHEMA",
    "DEFAULT_COLUMNS",
    "LEFT_OUT_SCHEMA",
    "LOST_VALUES_SCHEMA",
    "RECORD_COLUMNS",
    "REMARK_SCHEMA",
    "SEGMENT_SCHEMA",
]
