"""kafka-python uses what Python 3.11 and 3.12 deprecate: that is no error of ours."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.record  # noqa: F401
