"""A chunk on a GPU: the same stages by kernels; the CPU explains the errors that they detect."""
