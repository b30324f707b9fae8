"""Ignores warnings of kafka-python, which uses functions that Python 3.11 and 3.12 deprecate."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record  # noqa: F401
