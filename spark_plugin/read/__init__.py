"""Reads: options, splits on the driver, the work of a task, and streams."""
