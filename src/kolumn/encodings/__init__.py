"""What the bytes of typed values mean: scalar functions that are compiled for the CPU and for CUDA."""
