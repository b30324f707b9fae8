"""The result of `kolumn.verify`."""
