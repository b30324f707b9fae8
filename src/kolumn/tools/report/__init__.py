"""The page of `kolumn report`."""
