"""Batch reads: splits on the driver, and the work of a task."""
