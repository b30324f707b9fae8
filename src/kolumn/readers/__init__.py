"""What callers read with: `read`, `scan`, `batches`, `verify`, and the same for cuDF, Polars and DuckDB."""
