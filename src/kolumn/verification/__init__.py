"""What `kolumn.verify` returns."""
