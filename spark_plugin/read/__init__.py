"""Batch reads: splits on the driver, and what a task does."""
