"""What has to be true around calls of libcudf: its work is queued on a stream of its own, and it returns before the work is done."""

from importlib import import_module


def wait() -> None:
    """Wait for all that libcudf was asked for on its default stream.

    Our memory goes back in the order of our streams, which do not wait for libcudf's. So whoever passes memory to libcudf calls this before
    the memory may be dropped.
    """
    import_module("pylibcudf.utils").CUDF_DEFAULT_STREAM.synchronize()
