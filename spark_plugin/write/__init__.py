"""Segments written by tasks, published by the driver."""
