"""Streams of a log directory that grows."""
