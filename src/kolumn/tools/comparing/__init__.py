"""What differs between two copies of a log."""
