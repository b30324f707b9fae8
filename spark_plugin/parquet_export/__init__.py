"""`export`: the workers write Parquet, and every record is in the target exactly once."""
