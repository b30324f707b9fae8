"""What is made from a log besides a read: sizes, reports, Parquet, tables, recovery, groups."""
