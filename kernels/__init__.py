"""The stages on a GPU. Only this package imports CUDA, and it is imported only when a GPU is asked for."""
